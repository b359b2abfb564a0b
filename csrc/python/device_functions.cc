#include "python/functions.h"

#include <chrono>
#include <thread>

#include "aten/device.h"
#include "python/call_site.h"
#include "runtime/engine.h"
#include "runtime/stream.h"

namespace torch_tpu::python {
namespace {

using runtime::Engine;

PyObject* configure(PyObject* const* arguments, Py_ssize_t count) {
  std::string libtpu, embedded, torch, ours;
  if (!expect_count("configure", count, 4) || !to_string(arguments[0], &libtpu) ||
      !to_string(arguments[1], &embedded) || !to_string(arguments[2], &torch) || !to_string(arguments[3], &ours))
    return nullptr;
  Engine::configure(std::move(libtpu), std::move(embedded));
  set_internal_directories(std::move(torch), std::move(ours));
  return none().release();
}

PyObject* is_available(PyObject* const*, Py_ssize_t) { return from(Engine::available()).release(); }
PyObject* device_count(PyObject* const*, Py_ssize_t) { return from(Engine::device_count()).release(); }
PyObject* is_initialized(PyObject* const*, Py_ssize_t) { return from(Engine::opened()).release(); }
PyObject* in_bad_fork(PyObject* const*, Py_ssize_t) { return from(Engine::in_bad_fork()).release(); }
PyObject* current_device(PyObject* const*, Py_ssize_t) { return from(runtime::current_device()).release(); }

PyObject* init(PyObject* const*, Py_ssize_t) {
  Result<Engine*> engine = [] {
    WithoutGil released;
    return Engine::get();
  }();
  return engine.ok() ? none().release() : set_error(engine.error());
}

PyObject* shutdown(PyObject* const*, Py_ssize_t) {
  {
    WithoutGil released;
    const bool used = Engine::opened();
    Engine::shutdown();
    // Autograd's device thread drops the last backward's thread-local Python objects on its own time and takes the GIL
    // for it. Once Python finalises, taking the GIL ends that thread in the middle of a destructor, which aborts the
    // process (before Python 3.14). It is waiting for the GIL now, if at all: let it have it.
    if (used) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return none().release();
}

// index -> index: -1 becomes the current device; raises for one that does not exist.
PyObject* device_index(PyObject* const* arguments, Py_ssize_t count) {
  int64_t index = 0;
  if (!expect_count("device_index", count, 1) || !to_int(arguments[0], &index)) return nullptr;
  if (index < -1 || index > 127) {
    PyErr_Format(PyExc_RuntimeError, "tpu: device index out of range, got <tpu:%lld>", static_cast<long long>(index));
    return nullptr;
  }
  return from(aten::device_index(static_cast<c10::DeviceIndex>(index))).release();
}

PyObject* device_info(PyObject* const* arguments, Py_ssize_t count) {
  int64_t index = 0;
  if (!expect_count("device_info", count, 1) || !to_int(arguments[0], &index)) return nullptr;
  Result<Engine*> opened = [] {
    WithoutGil released;
    return Engine::get();
  }();
  if (!opened.ok()) return set_error(opened.error());
  const Engine& engine = *opened.value();
  const int device = aten::device_index(static_cast<c10::DeviceIndex>(index));
  Ref dict(PyDict_New());
  const pjrt::Client& client = engine.client();
  if (!set_item(dict, "name", from(engine.device_name(device))) || !set_item(dict, "engine", from(engine.name())) ||
      !set_item(dict, "kind", from(client.device_kind(device))) ||
      !set_item(dict, "platform_version", from(client.platform_version())) ||
      !set_item(dict, "plugin", from(client.plugin().path())) ||
      !set_item(dict, "host_readable", from(client.host_readable())) ||
      !set_item(dict, "portable_executables", from(client.portable_executables())))
    return nullptr;
  return dict.release();
}

PyObject* outstanding(PyObject* const* arguments, Py_ssize_t count) {
  int64_t index = 0;
  if (!expect_count("outstanding", count, 1) || !to_int(arguments[0], &index)) return nullptr;
  return from(runtime::outstanding(aten::device_index(static_cast<c10::DeviceIndex>(index)))).release();
}

// Milliseconds between two recorded events, given by their ids (torch.Event.elapsed_time refuses subclasses).
PyObject* elapsed_time(PyObject* const* arguments, Py_ssize_t count) {
  int64_t start = 0, end = 0;
  if (!expect_count("elapsed_time", count, 2) || !to_int(arguments[0], &start) || !to_int(arguments[1], &end))
    return nullptr;
  const auto* from_event = reinterpret_cast<const runtime::EventRecord*>(start);
  const auto* to_event = reinterpret_cast<const runtime::EventRecord*>(end);
  if (from_event == nullptr || to_event == nullptr)
    return set_error({ErrorCode::kValue, "tpu: both events must be recorded before calculating elapsed time"});
  Result<double> elapsed = from_event->elapsed_to(*to_event);
  return elapsed.ok() ? from(elapsed.value()).release() : set_error(elapsed.error());
}

PyObject* user_line(PyObject* const*, Py_ssize_t) { return from(call_site()).release(); }

}  // namespace

PyMethodDef device_functions[] = {
    function<configure>("configure",
                        "(libtpu, embedded, torch directory, own directory): where things are; opens nothing."),
    function<is_available>("is_available", "Could a device be used? Never raises, opens nothing."),
    function<device_count>("device_count", "Number of devices, without opening the engine."),
    function<is_initialized>("is_initialized", "Has the engine been opened?"),
    function<in_bad_fork>("in_bad_fork", "Is this a forked child of a process that had opened the engine?"),
    function<current_device>("current_device", "Index of the calling thread's device."),
    function<init>("init", "Opens the engine; raises RuntimeError with one sentence if it cannot."),
    function<shutdown>("shutdown", "Waits for outstanding work and closes the engine for good."),
    function<device_index>("device_index",
                           "(index): -1 becomes the current device; raises for one that does not exist."),
    function<device_info>("device_info", "(index): what the engine says about the device; opens it."),
    function<outstanding>("outstanding", "(index): submissions not yet seen complete."),
    function<elapsed_time>("elapsed_time", "(start, end): milliseconds between two recorded events, by id."),
    function<user_line>("user_line", "The caller's line as error messages name it."),
    kEnd};

}  // namespace torch_tpu::python
