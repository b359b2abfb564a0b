// Copies in all directions: host to device, device to host, within a device (with cast and broadcast), across devices.
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include "aten/capture.h"
#include "aten/device.h"
#include "aten/host_view.h"
#include "aten/kernel.h"
#include "aten/storage.h"
#include "ops/promote.h"
#include "runtime/memory.h"
#include "runtime/stream.h"

namespace torch_tpu::aten {
namespace {

const Plan& copy_plan() {
  static const auto* row = new ops::Row{"aten::_copy_from", [](ops::Context& c, const ops::Args& args) -> ops::Values {
                                          const ops::Value dst = args.tensor(1);
                                          return {ops::as(c, args.tensor(0), dst.dtype(), dst.shape())};
                                        }};
  static const auto* plan = new Plan(plan_overwriting(*row, "aten::_copy_from", 1));
  return *plan;
}

bool covers_storage(const at::Tensor& t) {
  return t.storage_offset() == 0 && t.is_non_overlapping_and_dense() && !t.is_conj() && !t.is_neg() &&
         t.numel() * static_cast<int64_t>(t.itemsize()) == static_cast<int64_t>(t.storage().nbytes());
}

void copy_on_device(const at::Tensor& src, const at::Tensor& dst) {
  // Equal dense layouts share the immutable buffer.
  if (src.scalar_type() == dst.scalar_type() && src.sizes() == dst.sizes() && src.strides() == dst.strides() &&
      covers_storage(src) && covers_storage(dst)) {
    runtime::Slot* to = slot_of(dst);
    if (runtime::ValueRef value = operand_of_slot(*slot_of(src))) {
      std::lock_guard<std::mutex> lock(to->mutex);
      Capture* const capture = Capture::current();
      if (capture != nullptr && to->value && to->value->debtor.load(std::memory_order_relaxed) == nullptr)
        capture->refuse("aten::copy_", "it writes to a tensor that is not an input of the graph");
      to->error.reset();
      to->value = std::move(value);
      return;
    }
  }
  const c10::IValue arguments[] = {src, dst, false};
  Results none;
  std::string reason;
  TORCH_CHECK_NOT_IMPLEMENTED(run(copy_plan(), arguments, -1, none, &reason), reason);
}

void copy_to_device(const at::Tensor& src, const at::Tensor& dst) {
  at::Tensor host = src.to(dst.scalar_type()).expand(dst.sizes()).resolve_conj().resolve_neg();
  if (covers_storage(dst)) {
    const auto order = memory_order(dst);
    at::Tensor dense = host.permute(order).contiguous();
    store_host(dense, dst, dense.sizes().vec());
    return;
  }
  copy_on_device(upload(host, dst.device().index()), dst);
}

void copy_across(const at::Tensor& src, const at::Tensor& dst) {
  at::Tensor dense = src.to(dst.scalar_type()).contiguous();
  runtime::ValueRef value = read_slot(*slot_of(dense));
  const int device = dst.device().index();
  at::Tensor landed = empty_strided_on(device, dense.sizes(), dense.strides(), dense.scalar_type());
  if (value && covers_storage(dense)) {
    check(runtime::admit(device, value->bytes, "copy across devices"));
    auto buffer = take(value->buffer.copy_to_device(device));
    runtime::leave_token(device, buffer.ready_event());
    slot_of(landed)->value =
        runtime::ValueRef(new runtime::BufferValue(std::move(buffer), value->type, device, value->bytes));
  } else {
    copy_to_device(host_view(dense, "aten::_copy_from"), landed);
  }
  copy_on_device(landed, dst);
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool) {
  if (dst.numel() == 0) return dst;
  const bool from_here = self.is_privateuseone();
  const bool to_here = dst.is_privateuseone();
  if (from_here && to_here) {
    self.device() == dst.device() ? copy_on_device(self, dst) : copy_across(self, dst);
  } else if (to_here) {
    copy_to_device(self.is_cpu() ? self : self.cpu(), dst);
  } else if (dst.is_cpu()) {
    // A plain CPU copy from a read-only view: casts, broadcasts and strides are ATen's.
    dst.copy_(host_view(self, "aten::_copy_from"));
  } else {
    dst.copy_(host_view(self, "aten::_copy_from").clone());
  }
  return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  if (dst.sizes() != self.sizes()) dst.resize_(self.sizes());
  return copy_from(self, dst, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) { return host_view(self, "aten::_local_scalar_dense").item(); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar_dense);
}

// The copy kernels read conj and neg bits themselves. Without these, the fallback of the bits would resolve them with a
// copy, and the copy would come back here, without end.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}

}  // namespace
}  // namespace torch_tpu::aten
