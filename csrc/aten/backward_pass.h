// Tells the recorder which backward pass a thread works for (runtime/hooks.h).
#pragma once

namespace torch_tpu::aten {

void install_backward_pass_hook();

}  // namespace torch_tpu::aten
