// The one boxed kernel behind every row: gather, look up (or make), execute, wrap.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/stack.h>

#include "aten/plan.h"
#include "aten/program.h"

namespace torch_tpu::aten {

// What running a call leaves behind: the fresh results (tensors, and ints where the schema returns one), in the
// schema's order.
using Results = c10::SmallVector<c10::IValue, 4>;

// Runs one call of a plan on the device. False: the rule does not do it, the caller falls back (why: *reason).
// `arguments` are the plan's arguments; `element` >= 0 picks the element of every list (per-element rows).
bool run(const Plan& plan, const c10::IValue* arguments, int element, Results& results, std::string* reason);

class OpKernel final : public c10::OperatorKernel {
 public:
  explicit OpKernel(Plan plan);
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);
  const Plan& plan() const { return plan_; }

 private:
  // Replaces masks in an index list; true when the whole call was done another way.
  bool prepare_indices(torch::jit::Stack* stack);

  Plan plan_;
  int indices_ = -1;  // position of a `Tensor?[] indices` argument
};

// Waits for everything submitted on the device and reports late errors.
void synchronize_device(int device);

}  // namespace torch_tpu::aten
