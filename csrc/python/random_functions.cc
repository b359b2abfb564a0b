#include "python/functions.h"

#include <torch/csrc/Generator.h>

#include "aten/device.h"
#include "aten/generator.h"

namespace torch_tpu::python {
namespace {

PyObject* default_generator(PyObject* const* arguments, Py_ssize_t count) {
  int64_t index = 0;
  if (!expect_count("default_generator", count, 1) || !to_int(arguments[0], &index)) return nullptr;
  return THPGenerator_Wrap(aten::default_generator(aten::device_index(static_cast<c10::DeviceIndex>(index))));
}

}  // namespace

PyMethodDef random_functions[] = {
    function<default_generator>("default_generator", "(index): the device's own torch.Generator; opens nothing."),
    kEnd};

}  // namespace torch_tpu::python
