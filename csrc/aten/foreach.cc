// `_foreach_*`: PyTorch's own kernels, which go tensor by tensor, with what they call recorded and run together.
//
// Equal tensors share one program as ever; once a call recurs, its tensors run as one program (fuse/regions.h). Nothing
// here knows what an op computes, so every list op that PyTorch adds is served.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "aten/storage.h"
#include "fuse/region.h"

namespace torch_tpu::aten {
namespace {

void tensor_by_tensor(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  fuse::Recording recording;
  op.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, *stack);
  check(recording.finish());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::_foreach_", 0) != 0) continue;
    auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || !op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd)) continue;
    const std::string own = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    m.impl(own.c_str(), torch::CppFunction::makeFromBoxedFunction<&tensor_by_tensor>());
  }
}

}  // namespace
}  // namespace torch_tpu::aten
