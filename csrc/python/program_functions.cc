#include "python/functions.h"

#include <algorithm>

#include "aten/dispatch_parts.h"
#include "aten/register.h"
#include "fuse/regions.h"
#include "runtime/statistics.h"
#include "store/background.h"
#include "store/program_store.h"

namespace torch_tpu::python {
namespace {

PyObject* list_of_strings(const std::vector<std::string>& items) {
  Ref list(PyList_New(0));
  if (!list) return nullptr;
  for (const std::string& item : items) {
    Ref text(PyUnicode_FromStringAndSize(item.data(), static_cast<Py_ssize_t>(item.size())));
    if (!text || PyList_Append(list.get(), text.get()) != 0) return nullptr;
  }
  return list.release();
}

PyObject* row_problems(PyObject* const*, Py_ssize_t) { return list_of_strings(aten::row_problems()); }
PyObject* registered_ops(PyObject* const*, Py_ssize_t) { return list_of_strings(aten::registered_ops()); }

PyObject* compile_log(PyObject* const*, Py_ssize_t) {
  Ref list(PyList_New(0));
  for (const store::CompileRecord& record : store::compile_log()) {
    Ref row(PyDict_New());
    if (!set_item(row, "op", from(record.op)) || !set_item(row, "detail", from(record.detail)) ||
        !set_item(row, "why", from(record.why)) || !set_item(row, "site", from(record.site)) ||
        !set_item(row, "key", from(record.key)) || !set_item(row, "seconds", from(record.seconds)) ||
        !set_item(row, "from_disk", from(record.from_disk)) || !set_item(row, "background", from(record.background)) ||
        !set_item(row, "text_bytes", from(record.text_bytes)) || !set_item(row, "when", from(record.when)) || !list ||
        PyList_Append(list.get(), row.get()) != 0)
      return nullptr;
  }
  return list.release();
}

// [{"ops", "steps", "runs", "strict", "joint", "results", "bytes", "seconds_saved", "cut", "state", "why"}], the
// busiest first.
PyObject* region_reports(PyObject* const*, Py_ssize_t) {
  Ref list(PyList_New(0));
  for (const fuse::RegionReport& report : fuse::region_reports()) {
    Ref row(PyDict_New());
    if (!set_item(row, "ops", from(report.ops)) || !set_item(row, "steps", from(report.steps)) ||
        !set_item(row, "runs", from(report.runs)) || !set_item(row, "strict", from(report.strict)) ||
        !set_item(row, "joint", from(report.joint)) || !set_item(row, "results", from(report.results)) ||
        !set_item(row, "bytes", from(report.bytes)) || !set_item(row, "seconds_saved", from(report.seconds_saved)) ||
        !set_item(row, "cut", from(report.cut)) || !set_item(row, "state", from(report.state)) ||
        !set_item(row, "why", from(report.why)) || !list || PyList_Append(list.get(), row.get()) != 0)
      return nullptr;
  }
  return list.release();
}

// {part: nanoseconds}
PyObject* dispatch_parts(PyObject* const* arguments, Py_ssize_t count) {
  int64_t calls = 0;
  if (!expect_count("dispatch_parts", count, 1) || !to_int(arguments[0], &calls)) return nullptr;
  Ref dict(PyDict_New());
  for (const auto& [name, value] : aten::dispatch_parts(static_cast<int>(std::max<int64_t>(calls, 1))))
    if (!set_item(dict, name.c_str(), from(value))) return nullptr;
  return dict.release();
}

PyObject* synchronize_compiles(PyObject* const*, Py_ssize_t) {
  {
    WithoutGil released;
    store::background::wait();
  }
  return none().release();
}

PyObject* totals(PyObject* const*, Py_ssize_t) {
  const runtime::Totals& now = runtime::totals();
  const std::pair<const char*, const std::atomic<int64_t>*> rows[] = {
      {"ops", &now.ops},
      {"executions", &now.executions},
      {"joint_executions", &now.joint_executions},
      {"compiles", &now.compiles},
      {"background_compiles", &now.background_compiles},
      {"disk_hits", &now.disk_hits},
      {"memory_hits", &now.memory_hits},
      {"evictions", &now.evictions},
      {"fallbacks", &now.fallbacks},
      {"host_to_device", &now.host_to_device},
      {"host_to_device_bytes", &now.host_to_device_bytes},
      {"device_to_host", &now.device_to_host},
      {"device_to_host_bytes", &now.device_to_host_bytes},
      {"donations", &now.donations},
      {"view_gathers", &now.view_gathers},
  };
  Ref dict(PyDict_New());
  for (const auto& [name, value] : rows)
    if (!set_item(dict, name, from(value->load()))) return nullptr;
  return dict.release();
}

PyObject* fallbacks_by_op(PyObject* const*, Py_ssize_t) {
  Ref dict(PyDict_New());
  for (const auto& [op, count] : runtime::fallbacks_by_op())
    if (!set_item(dict, op.c_str(), from(count))) return nullptr;
  return dict.release();
}

PyObject* cache_directory(PyObject* const*, Py_ssize_t) { return from(store::directory()).release(); }

PyObject* cache_entries(PyObject* const*, Py_ssize_t) {
  const auto entries = [] {
    WithoutGil released;
    return store::disk_entries();
  }();
  Ref list(PyList_New(0));
  for (const store::DiskEntry& entry : entries) {
    Ref row(PyDict_New());
    if (!set_item(row, "key", from(entry.key)) || !set_item(row, "op", from(entry.op)) ||
        !set_item(row, "bytes", from(entry.bytes)) || !set_item(row, "modified", from(entry.modified)) || !list ||
        PyList_Append(list.get(), row.get()) != 0)
      return nullptr;
  }
  return list.release();
}

PyObject* clear_cache(PyObject* const*, Py_ssize_t) {
  const int64_t removed = [] {
    WithoutGil released;
    return store::clear_disk();
  }();
  return from(removed).release();
}

}  // namespace

PyMethodDef program_functions[] = {
    function<registered_ops>("registered_ops", "Every overload that a row of the op table serves."),
    function<row_problems>("row_problems",
                           "Rows that could not be registered, each with the reason; empty in a good build."),
    function<compile_log>("compile_log", "Every program compiled or loaded from disk, oldest first, as dicts."),
    function<region_reports>("region_reports", "The regions of recorded ops, the busiest first, as dicts."),
    function<dispatch_parts>("dispatch_parts", "(calls): where the time of one eager op goes, for bench/."),
    function<synchronize_compiles>("synchronize_compiles", "Waits for the compiles that run in the background."),
    function<totals>("totals", "Running totals of the process."),
    function<fallbacks_by_op>("fallbacks_by_op", "{op: calls that ran on the CPU}."),
    function<cache_directory>("cache_directory", "Folder of the disk store, or '' when it is off."),
    function<cache_entries>("cache_entries", "The programs in the disk store, as dicts."),
    function<clear_cache>("clear_cache", "Empties the disk store; returns the number of files removed."),
    kEnd};

}  // namespace torch_tpu::python
