// torch_tpu._C: loading it registers the device with PyTorch; its functions are what the Python package is built on.
#include "aten/backward_pass.h"
#include "aten/register.h"
#include "python/functions.h"

#include "python/call_site.h"
#include "runtime/hooks.h"

namespace torch_tpu::python {
namespace {

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "torch_tpu._C",
                          "The C++ side of torch_tpu.",
                          -1,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

PyObject* create_module() {
  Ref module(PyModule_Create(&definition));
  if (!module) return nullptr;
  for (PyMethodDef* table :
       {device_functions, memory_functions, program_functions, settings_functions, random_functions, graph_functions})
    if (PyModule_AddFunctions(module.get(), table) != 0) return nullptr;
  if (PyModule_AddStringConstant(module.get(), "torch_minor", TORCH_TPU_TORCH_MINOR) != 0) return nullptr;
  runtime::hooks::set_call_site(&call_site);
  aten::install_backward_pass_hook();
  aten::set_stack_source(&call_stack);
  return module.release();
}

}  // namespace
}  // namespace torch_tpu::python

PyMODINIT_FUNC PyInit__C() {
  torch_tpu::aten::register_rows();
  return torch_tpu::python::create_module();
}
