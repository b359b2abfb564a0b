// A file of its own: autograd's header takes seconds to compile.
#include "aten/backward_pass.h"

#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/graph_task.h>

#include <utility>

#include "runtime/hooks.h"

namespace torch_tpu::aten {

void install_backward_pass_hook() {
  runtime::hooks::set_backward_pass([] { return int64_t{torch::autograd::get_current_graph_task_id()}; });
}

void keep_backward_passes_here() {
  thread_local bool done = false;
  if (std::exchange(done, true)) return;
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
}

}  // namespace torch_tpu::aten
