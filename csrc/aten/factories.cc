// Tensors without contents, and views of contents: PyTorch's own view kernels over our storages.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/util/strides.h>
#include <torch/library.h>

#include "aten/device.h"
#include "aten/host_view.h"
#include "aten/storage.h"

namespace torch_tpu::aten {
namespace {

void check_options(const char* op, std::optional<at::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(at::kStrided) == at::kStrided, op, ": layout ", *layout,
                              " is not supported on the tpu device; use a dense (strided) tensor");
}

// Deterministic mode fills memory that nobody wrote with NaN or the largest integer, as on other devices.
at::Tensor filled_if_deterministic(at::Tensor tensor) {
  auto& context = at::globalContext();
  if (!context.deterministicAlgorithms() || !context.deterministicFillUninitializedMemory()) return tensor;
  at::Tensor one = at::empty({}, tensor.options().device(at::kCPU));
  at::native::fill_empty_deterministic_(one);
  tensor.fill_(one);
  return tensor;
}

at::Tensor empty_memory_format(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                               std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory, std::optional<at::MemoryFormat> memory_format) {
  check_options("empty", layout, pin_memory);
  at::detail::check_size_nonnegative(size);
  const auto format = memory_format.value_or(at::MemoryFormat::Contiguous);
  at::Tensor result = empty_strided_on(device_index(device.value_or(make_device(-1))), size,
                                       c10::contiguous_strides(size), c10::dtype_or_default(dtype));
  if (format != at::MemoryFormat::Contiguous) result.unsafeGetTensorImpl()->empty_tensor_restride(format);
  return filled_if_deterministic(std::move(result));
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device,
                         std::optional<bool> pin_memory) {
  check_options("empty_strided", layout, pin_memory);
  at::detail::check_size_nonnegative(size);
  TORCH_CHECK(size.size() == stride.size(), "mismatch in length of strides and shape");
  for (int64_t s : stride)
    TORCH_CHECK(s >= 0, "as_strided: Negative strides are not supported at the moment, got strides: ", stride);
  return filled_if_deterministic(
      empty_strided_on(device_index(device.value_or(make_device(-1))), size, stride, c10::dtype_or_default(dtype)));
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> memory_format) {
  auto* impl = self.unsafeGetTensorImpl();
  at::detail::check_size_nonnegative(size);
  if (impl->sizes() != size) {
    const size_t needed =
        at::detail::computeStorageNbytesContiguous(size, self.itemsize(), static_cast<size_t>(self.storage_offset()));
    if (needed > self.storage().nbytes())
      at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(self.storage(), needed);
    impl->set_sizes_contiguous(size);
  }
  if (memory_format) {
    TORCH_CHECK(*memory_format != at::MemoryFormat::Preserve, "Unsupported memory format", *memory_format);
    impl->empty_tensor_restride(*memory_format);
  }
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) { return at::native::set_(self, std::move(source)); }

bool equal(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.device() == other.device(),
              "Expected all tensors to be on the same device, but found at least two devices, ", self.device(), " and ",
              other.device(), "!");
  TORCH_CHECK(self.dtype() == other.dtype(), "Expected all tensors to have the same dtype, but got ", self.dtype(),
              " and ", other.dtype());
  if (self.sizes() != other.sizes()) return false;
  if (self.numel() == 0) return true;
  return self.eq(other).all().item<bool>();
}

void record_stream(at::Tensor&, c10::Stream) {
  // PJRT keeps a buffer alive for every computation that reads it, whatever stream label it was submitted under.
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty_memory_format);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("view_as_real", &at::native::view_as_real);
  m.impl("view_as_complex", &at::native::view_as_complex);
  m.impl("resize_", &resize_);
  m.impl("set_.source_Storage_storage_offset", &at::native::set_storage_cpu_);
  m.impl("set_.source_Storage", &set_storage);
  m.impl("set_.source_Tensor", &at::native::set_tensor_);
  m.impl("set_", &at::native::set_cpu_);
  m.impl("is_set_to", &at::native::is_set_to);
  m.impl("equal", &equal);
  m.impl("record_stream", &record_stream);
}

}  // namespace
}  // namespace torch_tpu::aten
