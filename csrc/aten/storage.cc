#include "aten/storage.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>

#include "aten/device.h"
#include "aten/memory_trace.h"
#include "fuse/region.h"
#include "runtime/engine.h"
#include "runtime/memory.h"

namespace torch_tpu::aten {

namespace {
// torch.profiler's memory columns: storages as they come and go, whenever their buffers do.
void report_to_profiler(int device, void* address, int64_t change) {
  if (!c10::memoryProfilingEnabled()) return;
  const auto live = static_cast<size_t>(runtime::counters(device).allocated);
  c10::reportMemoryUsageToProfiler(address, change, live, live, make_device(device));
}
}  // namespace

at::DataPtr allocate_slot(int device, size_t bytes) {
  auto* slot = new runtime::Slot(device, static_cast<int64_t>(bytes));
  trace_allocation(device, slot->address(), slot->bytes());
  report_to_profiler(device, slot->address(), slot->bytes());
  return {slot->address(), slot, &delete_slot, at::Device(at::kPrivateUse1, static_cast<c10::DeviceIndex>(device))};
}

void delete_slot(void* context) {
  auto* slot = static_cast<runtime::Slot*>(context);
  trace_free(slot->device(), slot->address(), slot->bytes());
  report_to_profiler(slot->device(), slot->address(), -slot->bytes());
  delete slot;
}

runtime::Slot* slot_of(const c10::StorageImpl* storage) {
  const at::DataPtr& pointer = storage->data_ptr();
  if (pointer.get_deleter() == &delete_slot) return static_cast<runtime::Slot*>(pointer.get_context());
  runtime::Slot* slot = runtime::slot_at(pointer.get());
  TORCH_CHECK(slot != nullptr, "tpu: the storage has no memory on a tpu device");
  return slot;
}

runtime::Slot* slot_of(const at::Tensor& tensor) {
  return slot_of(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
}

namespace {
struct TypePair {
  at::ScalarType torch;
  DType ours;
};
constexpr TypePair kTypes[] = {
    {at::kBool, DType::kBool},
    {at::kByte, DType::kU8},
    {at::kChar, DType::kI8},
    {at::kShort, DType::kI16},
    {at::kInt, DType::kI32},
    {at::kLong, DType::kI64},
    {at::ScalarType::UInt16, DType::kU16},
    {at::ScalarType::UInt32, DType::kU32},
    {at::ScalarType::UInt64, DType::kU64},
    {at::kHalf, DType::kF16},
    {at::kBFloat16, DType::kBF16},
    {at::kFloat, DType::kF32},
    {at::kDouble, DType::kF64},
    {at::kComplexFloat, DType::kC64},
    {at::kComplexDouble, DType::kC128},
    {at::ScalarType::Float8_e4m3fn, DType::kF8E4M3FN},
    {at::ScalarType::Float8_e5m2, DType::kF8E5M2},
    {at::ScalarType::Float8_e4m3fnuz, DType::kF8E4M3FNUZ},
    {at::ScalarType::Float8_e5m2fnuz, DType::kF8E5M2FNUZ},
    {at::ScalarType::Float8_e8m0fnu, DType::kF8E8M0FNU},
};
}  // namespace

DType to_dtype(at::ScalarType type) {
  for (const auto& pair : kTypes)
    if (pair.torch == type) return pair.ours;
  return DType::kInvalid;
}

at::ScalarType to_scalar_type(DType dtype) {
  for (const auto& pair : kTypes)
    if (pair.ours == dtype) return pair.torch;
  return at::ScalarType::Undefined;
}

ViewSpec view_of(const at::Tensor& tensor) {
  ViewSpec view;
  view.dtype = to_dtype(tensor.scalar_type());
  view.sizes = tensor.sizes().vec();
  view.strides = tensor.strides().vec();
  view.offset = tensor.storage_offset();
  view.conj = tensor.is_conj();
  view.neg = tensor.is_neg();
  return view;
}

at::Tensor empty_strided_on(int device, at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type) {
  TORCH_CHECK_NOT_IMPLEMENTED(to_dtype(type) != DType::kInvalid, "tpu: dtype ", c10::toString(type),
                              " is not supported on the tpu device");
  const size_t bytes = at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(type));
  auto storage =
      c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, allocate_slot(device, bytes),
                                            c10::GetAllocator(at::kPrivateUse1), /*resizable=*/true);
  auto tensor = at::detail::make_tensor_base<at::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::scalarTypeToTypeMeta(type));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return at::Tensor(std::move(tensor));
}

namespace {
runtime::ValueRef value_of(runtime::Slot& slot) {
  if (runtime::Engine::in_bad_fork()) take(runtime::Engine::get());  // the lock may be a parent thread's
  std::lock_guard<std::mutex> lock(slot.mutex);
  if (slot.error) raise(*slot.error);
  return slot.value;
}
}  // namespace

runtime::ValueRef read_slot(runtime::Slot& slot) {
  runtime::ValueRef value = value_of(slot);
  if (value) check(runtime::force(value));
  return value;
}

runtime::ValueRef operand_of_slot(runtime::Slot& slot) {
  runtime::ValueRef value = value_of(slot);
  if (!value) return value;
  runtime::Debtor* debtor = value->debtor.load(std::memory_order_acquire);
  const bool recorded_here =
      debtor != nullptr && (debtor == fuse::Recorder::current() || static_cast<fuse::Recorder*>(debtor)->join());
  if (!recorded_here) check(runtime::force(value));
  return value;
}

void raise(const Error& error) {
  switch (error.code) {
    case ErrorCode::kIndex:
      TORCH_CHECK_INDEX(false, error.message);
    case ErrorCode::kType:
      TORCH_CHECK_TYPE(false, error.message);
    case ErrorCode::kValue:
      TORCH_CHECK_VALUE(false, error.message);
    case ErrorCode::kNotImplemented:
      TORCH_CHECK_NOT_IMPLEMENTED(false, error.message);
    case ErrorCode::kOutOfMemory:
      TORCH_CHECK_WITH(OutOfMemoryError, false, error.message);
    default:
      TORCH_CHECK(false, error.message);
  }
  std::terminate();  // unreachable: every branch above throws
}

}  // namespace torch_tpu::aten
