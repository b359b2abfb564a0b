// What the device does not do, said in one sentence instead of a missing-kernel list: sparse, quantised and nested
// layouts, and graph capture.
#include <ATen/core/GraphImplInterface.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace torch_tpu::aten {
namespace {

constexpr const char* kSparse =
    "sparse tensors are not supported on the tpu device; use a dense tensor (tensor.to_dense())";
constexpr const char* kQuantized =
    "quantized tensors are not supported on the tpu device; use bfloat16 or float8 dtypes";
constexpr const char* kNested =
    "nested tensors are not supported on the tpu device; pad them (torch.nested.to_padded_tensor)";
constexpr const char* kMkldnn = "the mkldnn layout is not supported on the tpu device; it exists on the CPU only";

template <const char* const* kSentence>
void refuse(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, op.operator_name(), ": ", *kSentence);
}

template <const char* const* kSentence>
torch::CppFunction refusal() {
  return torch::CppFunction::makeFromBoxedFunction<&refuse<kSentence>>();
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) { m.fallback(refusal<&kSparse>()); }
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) { m.fallback(refusal<&kSparse>()); }
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) { m.fallback(refusal<&kQuantized>()); }
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) { m.fallback(refusal<&kNested>()); }

// These have composite kernels, which win over a fallback; PyTorch picks their key from the layout asked for.
TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  for (const char* op :
       {"sparse_compressed_tensor.comp_plain_value_size", "sparse_compressed_tensor.comp_plain_value",
        "_sparse_compressed_tensor_unsafe", "_sparse_csr_tensor_unsafe", "_sparse_csc_tensor_unsafe",
        "_sparse_bsr_tensor_unsafe", "_sparse_bsc_tensor_unsafe", "_sparse_compressed_tensor_with_dims"})
    m.impl(op, refusal<&kSparse>());
}

// Ops that turn a dense tpu tensor into such a layout: the CPU fallback would make the layout on the CPU and then fail
// to bring it back.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* op : {"_to_sparse", "_to_sparse.sparse_dim", "_to_sparse_csr", "_to_sparse_csc", "_to_sparse_bsr",
                         "_to_sparse_bsc", "sparse_mask", "_sparse_coo_tensor_with_dims",
                         "_sparse_coo_tensor_with_dims_and_tensors", "_sparse_compressed_tensor_with_dims"})
    m.impl(op, refusal<&kSparse>());
  for (const char* op : {"quantize_per_tensor", "quantize_per_tensor.tensor_qparams", "quantize_per_tensor.tensors",
                         "quantize_per_channel", "quantize_per_tensor_dynamic", "_empty_affine_quantized",
                         "_empty_per_channel_affine_quantized", "empty_quantized", "_make_per_tensor_quantized_tensor",
                         "_make_per_channel_quantized_tensor"})
    m.impl(op, refusal<&kQuantized>());
  for (const char* op : {"_nested_tensor_from_mask", "_nested_from_padded", "_nested_tensor_from_tensor_list"})
    m.impl(op, refusal<&kNested>());
  m.impl("to_mkldnn", refusal<&kMkldnn>());
}

// torch.accelerator.Graph.
struct NoGraph final : public at::GraphImplInterface {
  explicit NoGraph(const at::GraphImplArgs&) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, "torch.accelerator.Graph: graph capture is not supported on the tpu device; use torch.compile");
  }
  void capture_begin(c10::MempoolId_t, at::GraphCaptureMode) override {}
  void capture_end() override {}
  void instantiate() override {}
  void replay() override {}
  void reset() override {}
  c10::MempoolId_t pool() const override { return {0, 0}; }
  void enable_debug_mode() override {}
  void debug_dump(const std::string&) override {}
};

// The registry's key is the upper-case device name.
const at::RegistererGraphImplRegistry graph_registered("TPU", at::GraphImplRegistry(),
                                                       &at::RegistererGraphImplRegistry::DefaultCreator<NoGraph>);

}  // namespace
}  // namespace torch_tpu::aten
