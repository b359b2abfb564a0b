#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "python/call_site.h"

#include <unistd.h>

#include <climits>
#include <string_view>

namespace torch_tpu::python {
namespace {

struct Directories {
  std::string torch, ours;
};
Directories& directories() {
  static auto* instance = new Directories;
  return *instance;
}

bool is_internal(const char* file) {
  const std::string_view name(file);
  const auto inside = [&](const std::string& directory) { return !directory.empty() && name.starts_with(directory); };
  return name.starts_with("<frozen ") || inside(directories().torch) || inside(directories().ours);
}

bool interpreter_runs() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

// Takes the GIL and keeps a pending Python error untouched.
class Interpreter {
 public:
  Interpreter() : state_(PyGILState_Ensure()) { PyErr_Fetch(&type_, &value_, &traceback_); }
  ~Interpreter() {
    PyErr_Restore(type_, value_, traceback_);
    PyGILState_Release(state_);
  }

 private:
  PyGILState_STATE state_;
  PyObject *type_ = nullptr, *value_ = nullptr, *traceback_ = nullptr;
};

// Calls visit(file, function, line) from the innermost frame outwards until it returns false.
template <typename Visit>
void walk_frames(Visit visit) {
  PyThreadState* thread = PyThreadState_Get();
  PyFrameObject* frame = PyThreadState_GetFrame(thread);
  bool more = true;
  while (frame != nullptr && more) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const char* file = PyUnicode_AsUTF8(code->co_filename);
    const char* function = PyUnicode_AsUTF8(code->co_name);
    if (file == nullptr || function == nullptr)
      PyErr_Clear();
    else
      more = visit(file, function, PyFrame_GetLineNumber(frame));
    Py_DECREF(code);
    PyFrameObject* back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  Py_XDECREF(frame);
}

// Relative to the directory of the first call: asking for the current one costs as much as finding the line.
std::string_view shortened(const char* file) {
  static const std::string* const prefix = [] {
    char buffer[PATH_MAX];
    return new std::string(getcwd(buffer, sizeof buffer) == nullptr ? "" : std::string(buffer) + "/");
  }();
  const std::string_view whole(file);
  return !prefix->empty() && whole.starts_with(*prefix) ? whole.substr(prefix->size()) : whole;
}

}  // namespace

void set_internal_directories(std::string torch, std::string ours) {
  directories() = {std::move(torch), std::move(ours)};
}

std::string call_site() {
  if (!interpreter_runs()) return "";
  Interpreter interpreter;
  std::string site;
  walk_frames([&](const char* file, const char*, int line) {
    if (is_internal(file)) return true;
    site.append(shortened(file)).append(":").append(std::to_string(line));
    return false;
  });
  return site;
}

std::vector<aten::TraceFrame> call_stack(int64_t limit) {
  std::vector<aten::TraceFrame> frames;
  if (!interpreter_runs()) return frames;
  Interpreter interpreter;
  walk_frames([&](const char* file, const char* function, int line) {
    frames.push_back({file, function, line});
    return static_cast<int64_t>(frames.size()) < limit;
  });
  return frames;
}

}  // namespace torch_tpu::python
