// Between PyTorch's storages and our slots.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include "base/error.h"
#include "base/shape.h"
#include "runtime/slot.h"

namespace torch_tpu::aten {

// A DataPtr whose context is a new Slot and whose deleter is `delete_slot`. Allocates no device memory.
at::DataPtr allocate_slot(int device, size_t bytes);
void delete_slot(void* context);

// The slot behind a storage: its own context, or, where PyTorch wrapped our address in a foreign DataPtr (pickling,
// DLPack), the slot found by address. Raises when the storage is not on a tpu device.
runtime::Slot* slot_of(const c10::StorageImpl* storage);
runtime::Slot* slot_of(const at::Tensor& tensor);

DType to_dtype(at::ScalarType type);  // kInvalid for quantised and exotic types
at::ScalarType to_scalar_type(DType dtype);

// How the tensor looks at its storage.
ViewSpec view_of(const at::Tensor& tensor);

// A new strided tensor over a new slot (no buffer yet). Raises as PyTorch does for unsupported dtypes.
at::Tensor empty_strided_on(int device, at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type);

// The current value of a slot, or the error that it carries as an exception. May be empty (never written).
runtime::ValueRef read_slot(runtime::Slot& slot);
// The same, but what this thread is recording may owe the buffer (fuse/region.h). For operands of ops.
runtime::ValueRef operand_of_slot(runtime::Slot& slot);

// Raises the exception that PyTorch uses for this kind of error.
[[noreturn]] void raise(const Error& error);
inline void check(const Status& status) {
  if (!status.ok()) raise(status.error());
}
template <typename T>
T take(Result<T> result) {
  if (!result.ok()) raise(result.error());
  return result.take();
}

}  // namespace torch_tpu::aten
