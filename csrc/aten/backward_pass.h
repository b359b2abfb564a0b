// Backward passes: which one a thread works for, and where they run.
#pragma once

namespace torch_tpu::aten {

// Tells the recorder which backward pass a thread works for (runtime/hooks.h).
void install_backward_pass_hook();

// Note [Backward passes run in the calling thread]
// PyTorch hands the nodes of an accelerator to a thread of autograd's, and the caller waits for it: two switches of
// threads, 40 of an MLP step's 400 us, and nothing runs in parallel that the device would not overlap anyway. For the
// CPU it does not do so, nor for anything while torch.autograd.set_multithreading_enabled(False) holds. That is what
// this sets for the calling thread, once, at its first op; whoever turns it on afterwards has it on.
void keep_backward_passes_here();

}  // namespace torch_tpu::aten
