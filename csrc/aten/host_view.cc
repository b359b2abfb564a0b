#include "aten/host_view.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

#include "aten/device.h"
#include "aten/storage.h"
#include "aten/sync_debug.h"
#include "runtime/late_error.h"
#include "runtime/memory.h"
#include "runtime/statistics.h"
#include "runtime/stream.h"

namespace torch_tpu::aten {
namespace {

void wait(const runtime::ValueRef& value, const char* op) {
  Status status = value->buffer.ready_event().wait();
  if (status.ok()) return;
  Error error = status.error();
  error.message = std::string(value->producer != nullptr ? value->producer : op) + ": " + error.message;
  raise(error);
}

// The slot's bytes on the host and what keeps them alive.
struct HostBytes {
  const void* data = nullptr;
  std::shared_ptr<void> owner;
};

HostBytes bytes_of(const runtime::ValueRef& value, const char* op) {
  wait(value, op);
  const auto& client = engine().client();
  auto& totals = runtime::totals();
  ++totals.device_to_host;
  const int64_t bytes = element_count(value->type.shape) * byte_size(value->type.dtype);
  totals.device_to_host_bytes += bytes;
  if (client.host_readable()) {
    const void* pointer = take(value->buffer.host_pointer());
    return {pointer, std::make_shared<runtime::ValueRef>(value)};
  }
  auto copy = std::make_shared<at::Tensor>(at::empty({bytes}, at::kByte));
  check(take(value->buffer.to_host(copy->mutable_data_ptr(), static_cast<size_t>(bytes))).wait());
  return {copy->const_data_ptr(), copy};
}

}  // namespace

at::Tensor host_view(const at::Tensor& tensor, const char* op) {
  note_host_read(op);
  const int device = tensor.device().index();
  check(runtime::check_flags(device, /*wait=*/true));
  const auto options = at::TensorOptions().dtype(tensor.scalar_type());
  if (tensor.numel() == 0) return at::empty(tensor.sizes(), options);
  runtime::ValueRef value = read_slot(*slot_of(tensor));
  if (!value) return at::zeros(tensor.sizes(), options);
  HostBytes bytes = bytes_of(value, op);
  auto* start = static_cast<char*>(const_cast<void*>(bytes.data)) +
                tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize());
  at::Tensor view =
      at::from_blob(start, tensor.sizes(), tensor.strides(), [owner = std::move(bytes.owner)](void*) {}, options);
  if (tensor.is_conj()) view._set_conj(true);
  if (tensor.is_neg()) view._set_neg(true);
  return view;
}

void store_host(const at::Tensor& dense_host, const at::Tensor& destination, const Shape& buffer_shape) {
  runtime::Slot* slot = slot_of(destination);
  const DType dtype = to_dtype(destination.scalar_type());
  const int64_t bytes = element_count(buffer_shape) * byte_size(dtype);
  check(runtime::admit(slot->device(), bytes, "copy to device"));
  auto buffer = take(engine().client().from_host(dense_host.const_data_ptr(), dtype, buffer_shape, slot->device()));
  // Where the host cannot read device memory, uploads complete later.
  if (!engine().client().host_readable()) runtime::leave_token(slot->device(), buffer.ready_event());
  runtime::ValueRef value(new runtime::BufferValue(std::move(buffer), {dtype, buffer_shape}, slot->device(), bytes));
  auto& totals = runtime::totals();
  ++totals.host_to_device;
  totals.host_to_device_bytes += bytes;
  std::lock_guard<std::mutex> lock(slot->mutex);
  slot->error.reset();
  slot->value = std::move(value);
}

std::vector<int64_t> memory_order(const at::Tensor& t) {
  std::vector<int64_t> order(t.dim());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return t.stride(a) > t.stride(b); });
  return order;
}

at::Tensor upload(const at::Tensor& host, int device) {
  at::Tensor dense = host.resolve_conj().resolve_neg();
  if (!dense.is_non_overlapping_and_dense()) dense = dense.contiguous();
  at::Tensor result = empty_strided_on(device, dense.sizes(), dense.strides(), dense.scalar_type());
  if (dense.numel() == 0) return result;
  const at::Tensor in_order = dense.permute(memory_order(dense)).contiguous();
  store_host(in_order, result, in_order.sizes().vec());
  return result;
}

}  // namespace torch_tpu::aten
