// Ops whose result's size depends on values: nonzero, masked_select, unique, ...
//
// The host must learn the size before the result can exist, so the device waits for the host whatever we do. The op
// runs on the host over the device buffer (in place on the embedded engine, over one copy elsewhere) and its result is
// uploaded: no program is compiled, whatever the count. These are host kernels by nature, not CPU fallbacks.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "aten/data_dependent.h"
#include "aten/host_view.h"
#include "aten/storage.h"

namespace torch_tpu::aten {
namespace {

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const std::string& name = schema.name();
  const size_t count = schema.arguments().size();
  int device = 0;
  torch::jit::Stack host;
  for (size_t i = stack->size() - count; i < stack->size(); ++i) {
    const c10::IValue& v = (*stack)[i];
    if (v.isTensor() && v.toTensor().defined() && v.toTensor().is_privateuseone()) {
      device = v.toTensor().device().index();
      host.emplace_back(host_view(v.toTensor(), name.c_str()));
    } else {
      host.push_back(v);
    }
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &host);
  torch::jit::drop(*stack, count);
  for (const c10::IValue& v : host)
    stack->emplace_back(v.isTensor() && v.toTensor().defined() ? c10::IValue(upload(v.toTensor(), device)) : v);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* op : {"nonzero", "masked_select", "_unique", "_unique2", "unique_dim", "unique_consecutive",
                         "unique_dim_consecutive", "bincount", "repeat_interleave.Tensor"})
    m.impl(op, torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

}  // namespace

namespace {
bool is_mask(const at::Tensor& t) { return t.scalar_type() == at::kBool || t.scalar_type() == at::kByte; }
}  // namespace

bool needs_expansion(const c10::IValue& indices) {
  for (const c10::IValue& item : indices.toListRef())
    if (item.isTensor() && item.toTensor().defined() &&
        (is_mask(item.toTensor()) || !item.toTensor().is_privateuseone()))
      return true;
  return false;
}

at::Tensor fillable_mask(const at::Tensor& self, const c10::IValue& indices) {
  at::Tensor mask;
  int64_t dim = 0;
  for (const c10::IValue& item : indices.toListRef()) {
    if (!item.isTensor() || !item.toTensor().defined()) {
      if (!mask.defined()) ++dim;
      continue;
    }
    if (mask.defined() || item.toTensor().scalar_type() != at::kBool || item.toTensor().device() != self.device())
      return {};
    mask = item.toTensor();
  }
  if (!mask.defined() || dim + mask.dim() > self.dim()) return {};
  for (int64_t j = 0; j < mask.dim(); ++j)
    if (mask.size(j) != self.size(dim + j)) return {};
  while (dim + mask.dim() < self.dim()) mask = mask.unsqueeze(-1);
  return mask;
}

c10::IValue expand_masks(const at::Tensor& self, const c10::IValue& indices) {
  c10::List<std::optional<at::Tensor>> expanded;
  int64_t dim = 0;
  for (const c10::IValue& item : indices.toListRef()) {
    if (!item.isTensor() || !item.toTensor().defined()) {
      expanded.push_back(std::nullopt);
      ++dim;
      continue;
    }
    at::Tensor index = item.toTensor();
    if (is_mask(index)) {
      for (int64_t j = 0; j < index.dim(); ++j) {
        TORCH_CHECK_INDEX(dim + j < self.dim() && index.size(j) == self.size(dim + j), "The shape of the mask ",
                          index.sizes(), " at index ", j, " does not match the shape of the indexed tensor ",
                          self.sizes(), " at index ", dim + j);
      }
      const at::Tensor found = index.nonzero().to(self.device());
      for (int64_t j = 0; j < index.dim(); ++j) expanded.push_back(found.select(1, j));
      dim += index.dim();
    } else {
      expanded.push_back(index.device() == self.device() ? index : index.to(self.device()));
      ++dim;
    }
  }
  return expanded;
}

}  // namespace torch_tpu::aten
