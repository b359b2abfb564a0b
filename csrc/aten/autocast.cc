// torch.autocast("tpu"): everything falls through except PyTorch's own op lists.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace torch_tpu::aten {
namespace {

// PyTorch's list of signatures names these without a namespace.
using at::IntArrayRef;
using at::Scalar;
using at::ScalarType;
using at::Tensor;

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define TORCH_TPU_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(TORCH_TPU_LOWER)
#undef TORCH_TPU_LOWER

#define TORCH_TPU_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(TORCH_TPU_FP32)
  // PyTorch forbids this one on CUDA because float16 overflows; in float32 it is safe, as on the CPU.
  TORCH_TPU_FP32(binary_cross_entropy)
#undef TORCH_TPU_FP32

#define TORCH_TPU_FP32_SET_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(TORCH_TPU_FP32_SET_DTYPE)
#undef TORCH_TPU_FP32_SET_DTYPE

  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)

#define TORCH_TPU_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(TORCH_TPU_PROMOTE)
  TORCH_TPU_PROMOTE(stack)
  TORCH_TPU_PROMOTE(cat)
#undef TORCH_TPU_PROMOTE
}

}  // namespace
}  // namespace torch_tpu::aten
