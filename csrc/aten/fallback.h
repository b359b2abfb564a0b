// What has no row runs on the CPU: announced once per op, counted, forbidden on request.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/stack.h>

#include <string>

namespace torch_tpu::aten {

// Copies the tensor arguments to the host, runs the op there, copies written arguments back and fresh results to the
// device of the inputs. Raises NotImplementedError for view ops (a detached copy would not be a view) and when
// torch.tpu.fallback("error") is set. `reason`: why, when the op has a row; empty when it has none.
void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack, const std::string& reason);

}  // namespace torch_tpu::aten
