// One call of a plan: the operands its program takes and the key its program is found by.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include "aten/plan.h"
#include "runtime/slot.h"

namespace torch_tpu::aten {

// An operand of the program. Slots are passed once each, however many views of them are arguments.
struct Operand {
  enum class Kind : uint8_t { kSlot, kScalar };
  Kind kind = Kind::kSlot;
  bool written = false;
  runtime::Slot* slot = nullptr;
  runtime::ValueRef value;                   // slots: as seen while gathering; scalars: the cached upload
  hlo::Type type;                            // scalars: rank 0
  alignas(16) unsigned char bytes[16] = {};  // scalars: the number itself
};

// How one tensor argument meets the operands.
struct TensorUse {
  const at::Tensor* tensor = nullptr;
  int argument = -1;
  int operand = -1;  // -1: no buffer (zero-size, never written, or about to be overwritten whole)
  bool written = false;
  bool fresh = false;  // an out= argument that is overwritten whole: its old contents are not read
};

// How an argument that is not a tensor meets the operands (Scalars, and doubles of rows with double_operands).
struct ScalarUse {
  int argument = -1;
  int operand = -1;  // -1: specialised, the value is in the key
  double constant = 0;
};

using KeyWords = c10::SmallVector<uint64_t, 64>;

struct Call {
  const Plan* plan = nullptr;
  const c10::IValue* arguments = nullptr;  // plan->args.size() of them
  int element = -1;                        // per-element rows: which element of every list
  int device = -1;
  c10::SmallVector<Operand, 6> operands;
  c10::SmallVector<TensorUse, 6> tensors;
  c10::SmallVector<ScalarUse, 4> scalars;
  KeyWords key;
};

// Fills operands and key. Raises PyTorch's errors for mixed devices; runs nothing on the device.
void gather(Call& call);

// The tensor of argument i (element k of a list for per-element rows), or nullptr for an absent one.
const at::Tensor* tensor_argument(const Call& call, size_t i);

// Environment that enters every key: matmul precision, deterministic mode, default dtype, index checks.
uint64_t ambient_key(const ops::Row& row);

}  // namespace torch_tpu::aten
