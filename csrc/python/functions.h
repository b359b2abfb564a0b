// The function tables that make up torch_tpu._C; each lives in the file of its subject.
#pragma once

#include "python/convert.h"

namespace torch_tpu::python {

extern PyMethodDef device_functions[];    // engine, devices
extern PyMethodDef memory_functions[];    // counters, limits, live allocations
extern PyMethodDef program_functions[];   // compile log, statistics, disk store
extern PyMethodDef settings_functions[];  // debug, fallback, synchronisation warnings, environment
extern PyMethodDef random_functions[];    // generators
extern PyMethodDef graph_functions[];     // compiled graphs

// A row of a table. `body` may throw: the wrapper turns C++ exceptions into Python ones.
using Body = PyObject* (*)(PyObject* const*, Py_ssize_t);
template <Body body>
PyObject* wrapper(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  return guarded(body, arguments, count);
}
template <Body body>
constexpr PyMethodDef function(const char* name, const char* doc) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&wrapper<body>)), METH_FASTCALL, doc};
}
constexpr PyMethodDef kEnd = {nullptr, nullptr, 0, nullptr};

}  // namespace torch_tpu::python
