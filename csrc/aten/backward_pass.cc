// Which backward pass a thread works for. A file of its own: autograd's header takes seconds to compile.
#include "aten/backward_pass.h"

#include <torch/csrc/autograd/graph_task.h>

#include "runtime/hooks.h"

namespace torch_tpu::aten {

void install_backward_pass_hook() {
  runtime::hooks::set_backward_pass([] { return int64_t{torch::autograd::get_current_graph_task_id()}; });
}

}  // namespace torch_tpu::aten
