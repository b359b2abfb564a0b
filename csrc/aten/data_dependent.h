// Index lists with masks: the masks become integer indices before a rule sees them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace torch_tpu::aten {

// Does a `Tensor?[] indices` argument hold a bool or uint8 mask, or an index tensor in host memory?
bool needs_expansion(const c10::IValue& indices);

// `self[..., mask] = number` is a masked_fill and needs no host: the mask, with trailing dimensions added so that it
// broadcasts to self; undefined when the indices are anything else.
at::Tensor fillable_mask(const at::Tensor& self, const c10::IValue& indices);

// The list with every mask replaced by the index tensors of its nonzero elements and host index tensors moved to
// self's device. Raises IndexError where a mask's shape does not fit.
c10::IValue expand_masks(const at::Tensor& self, const c10::IValue& indices);

}  // namespace torch_tpu::aten
