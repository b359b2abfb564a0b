// PyTorch's compiled shape inference, reached without the dispatcher. The table is generated from PyTorch's headers
// (tools/generate_meta_kernels.py).
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include <string>

namespace torch_tpu::aten {

// The inference function of an overload ("aten::add.Tensor", "aten::add.out"), or nullptr where PyTorch compiled none.
const c10::KernelFunction* meta_kernel(const std::string& name);

}  // namespace torch_tpu::aten
