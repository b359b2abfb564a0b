#include "python/functions.h"

#include <ATen/core/CachingHostAllocator.h>

#include "aten/allocator.h"
#include "aten/device.h"
#include "aten/memory_trace.h"
#include "aten/storage.h"
#include "runtime/memory.h"
#include "runtime/slot.h"

namespace torch_tpu::python {
namespace {

// Reads the device, and runs what is recorded for it: who asks about memory means what the program has made so far.
bool to_device(const char* function, PyObject* const* arguments, Py_ssize_t count, int* device) {
  int64_t index = 0;
  if (!expect_count(function, count, 1) || !to_int(arguments[0], &index)) return false;
  *device = aten::device_index(static_cast<c10::DeviceIndex>(index));
  WithoutGil released;
  aten::run_recorded(*device);
  return true;
}

PyObject* memory_counters(PyObject* const* arguments, Py_ssize_t count) {
  int device = 0;
  if (!to_device("memory_counters", arguments, count, &device)) return nullptr;
  const runtime::MemoryCounters now = runtime::counters(device);
  Ref dict(PyDict_New());
  if (!set_item(dict, "allocated", from(now.allocated)) || !set_item(dict, "peak", from(now.peak)) ||
      !set_item(dict, "total_allocated", from(now.total_allocated)) ||
      !set_item(dict, "total_freed", from(now.total_freed)) || !set_item(dict, "allocations", from(now.allocations)) ||
      !set_item(dict, "allocations_peak", from(now.allocations_peak)) ||
      !set_item(dict, "allocations_total", from(now.allocations_total)) ||
      !set_item(dict, "frees_total", from(now.frees_total)) ||
      !set_item(dict, "out_of_memory", from(now.out_of_memory)) || !set_item(dict, "retries", from(now.retries)) ||
      !set_item(dict, "limit", from(now.limit)))
    return nullptr;
  return dict.release();
}

PyObject* memory_info(PyObject* const* arguments, Py_ssize_t count) {
  int device = 0;
  if (!to_device("memory_info", arguments, count, &device)) return nullptr;
  const auto info = [&] {
    WithoutGil released;
    return aten::memory_info(device);
  }();
  if (!info.ok()) return set_error(info.error());
  return Py_BuildValue("(LL)", static_cast<long long>(info.value().first), static_cast<long long>(info.value().second));
}

PyObject* reset_peak(PyObject* const* arguments, Py_ssize_t count) {
  int device = 0;
  if (!to_device("reset_peak", arguments, count, &device)) return nullptr;
  runtime::reset_peak(device);
  return none().release();
}

PyObject* reset_accumulated(PyObject* const* arguments, Py_ssize_t count) {
  int device = 0;
  if (!to_device("reset_accumulated", arguments, count, &device)) return nullptr;
  runtime::reset_accumulated(device);
  return none().release();
}

PyObject* set_memory_fraction(PyObject* const* arguments, Py_ssize_t count) {
  int64_t index = 0;
  double fraction = 0;
  if (!expect_count("set_memory_fraction", count, 2) || !to_int(arguments[0], &index) ||
      !to_double(arguments[1], &fraction))
    return nullptr;
  const int device = aten::device_index(static_cast<c10::DeviceIndex>(index));
  {
    WithoutGil released;
    aten::run_recorded(device);
  }
  if (runtime::memory_limit(device) < 0) {
    // A part of no limit would be no limit: where the engine reports none, it is the machine's memory.
    const auto total = aten::total_memory(device);
    if (!total.ok()) return set_error(total.error());
    runtime::set_plugin_memory_limit(device, total.value());
  }
  runtime::set_memory_fraction(device, fraction);
  return none().release();
}

PyObject* empty_cache(PyObject* const*, Py_ssize_t) {
  {
    WithoutGil released;
    runtime::run_reclaimers();
  }
  return none().release();
}

struct LiveAllocation {
  int device;
  int64_t address, bytes, buffer_bytes;
  std::string type;
};

// Every live storage: [(device, address, bytes, bytes of its buffer or 0, "float32[2, 3]" or "")].
PyObject* live_allocations(PyObject* const*, Py_ssize_t) {
  std::vector<LiveAllocation> found;
  {
    // The visitor must not take the GIL: a deleter that holds it may wait for the table.
    WithoutGil released;
    aten::run_recorded(-1);
    runtime::for_each_slot([&](runtime::Slot& slot) {
      std::lock_guard<std::mutex> lock(slot.mutex);
      LiveAllocation allocation{slot.device(), reinterpret_cast<intptr_t>(slot.address()), slot.bytes(), 0, ""};
      if (slot.value) {
        allocation.buffer_bytes = slot.value->bytes;
        allocation.type =
            std::string(torch_name(slot.value->type.dtype)) + torch_tpu::to_string(slot.value->type.shape);
      }
      found.push_back(std::move(allocation));
    });
  }
  Ref list(PyList_New(0));
  for (const LiveAllocation& a : found) {
    Ref row(Py_BuildValue("(iLLLs)", a.device, static_cast<long long>(a.address), static_cast<long long>(a.bytes),
                          static_cast<long long>(a.buffer_bytes), a.type.c_str()));
    if (!list || !row || PyList_Append(list.get(), row.get()) != 0) return nullptr;
  }
  return list.release();
}

// The host-readable address of what a storage holds now; 0 while nothing was written to it. Keeps nothing alive.
PyObject* buffer_pointer(PyObject* const* arguments, Py_ssize_t count) {
  int64_t address = 0;
  if (!expect_count("buffer_pointer", count, 1) || !to_int(arguments[0], &address)) return nullptr;
  const Result<const void*> pointer = [&]() -> Result<const void*> {
    WithoutGil released;
    runtime::Slot* slot = runtime::slot_at(reinterpret_cast<const void*>(address));
    if (slot == nullptr) return Error{ErrorCode::kValue, "buffer_pointer: expected the address of a tpu storage"};
    const runtime::ValueRef value = aten::read_slot(*slot);
    if (!value) return nullptr;
    if (Status status = value->buffer.ready_event().wait(); !status.ok()) return status.error();
    return value->buffer.host_pointer();
  }();
  if (!pointer.ok()) return set_error(pointer.error());
  return from(static_cast<int64_t>(reinterpret_cast<intptr_t>(pointer.value()))).release();
}

PyObject* record_memory_history(PyObject* const* arguments, Py_ssize_t count) {
  int64_t limit = 0, frames = 0;
  if (!expect_count("record_memory_history", count, 2) || !to_int(arguments[0], &limit) ||
      !to_int(arguments[1], &frames))
    return nullptr;
  aten::set_memory_trace(limit, frames);
  return none().release();
}

// [(action, address, bytes, device, microseconds, [(file, line, function)])], oldest first.
PyObject* memory_history(PyObject* const*, Py_ssize_t) {
  {
    WithoutGil released;
    aten::run_recorded(-1);
  }
  Ref list(PyList_New(0));
  for (const aten::TraceEntry& entry : aten::memory_trace()) {
    Ref frames(PyList_New(0));
    for (const aten::TraceFrame& f : entry.frames) {
      Ref frame(Py_BuildValue("(sis)", f.file.c_str(), f.line, f.function.c_str()));
      if (!frames || !frame || PyList_Append(frames.get(), frame.get()) != 0) return nullptr;
    }
    Ref row(Py_BuildValue("(sLLiLO)", entry.allocated ? "alloc" : "free_completed",
                          static_cast<long long>(entry.address), static_cast<long long>(entry.bytes), entry.device,
                          static_cast<long long>(entry.microseconds), frames.get()));
    if (!list || !row || PyList_Append(list.get(), row.get()) != 0) return nullptr;
  }
  return list.release();
}

PyObject* host_memory_stats(PyObject* const*, Py_ssize_t) {
  const at::HostStats stats = at::getHostAllocator(at::kPrivateUse1)->get_stats();
  const std::pair<const char*, const at::Stat*> rows[] = {{"active_requests", &stats.active_requests},
                                                          {"active_bytes", &stats.active_bytes},
                                                          {"allocations", &stats.allocations},
                                                          {"allocated_bytes", &stats.allocated_bytes}};
  Ref dict(PyDict_New());
  for (const auto& [name, stat] : rows) {
    const std::string prefix = std::string(name) + ".";
    if (!set_item(dict, (prefix + "current").c_str(), from(stat->current)) ||
        !set_item(dict, (prefix + "peak").c_str(), from(stat->peak)) ||
        !set_item(dict, (prefix + "allocated").c_str(), from(stat->allocated)) ||
        !set_item(dict, (prefix + "freed").c_str(), from(stat->freed)))
      return nullptr;
  }
  if (!set_item(dict, "num_host_alloc", from(stats.num_host_alloc)) ||
      !set_item(dict, "num_host_free", from(stats.num_host_free)))
    return nullptr;
  return dict.release();
}

}  // namespace

PyMethodDef memory_functions[] = {
    function<memory_counters>("memory_counters", "(index): live, peak and accumulated bytes and buffer counts."),
    function<memory_info>("memory_info", "(index): (free, total) bytes; may open the engine."),
    function<reset_peak>("reset_peak", "(index): the peak becomes what is live now."),
    function<reset_accumulated>("reset_accumulated", "(index): accumulated counts start again at zero."),
    function<set_memory_fraction>("set_memory_fraction", "(index, fraction): scales the memory limit."),
    function<empty_cache>("empty_cache", "Frees what is kept only for reuse."),
    function<live_allocations>("live_allocations",
                               "[(device, address, bytes, buffer bytes, type)] of every live storage."),
    function<buffer_pointer>("buffer_pointer",
                             "(address of a storage): where its buffer lies now, 0 without one; embedded engine only."),
    function<record_memory_history>("record_memory_history",
                                    "(entries, frames): records storages from now on; 0 entries stops."),
    function<memory_history>("memory_history", "What was recorded, oldest first."),
    function<host_memory_stats>("host_memory_stats", "Counters of pinned host memory."),
    kEnd};

}  // namespace torch_tpu::python
