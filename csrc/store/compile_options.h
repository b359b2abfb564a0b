// Which compiler options a plugin accepts: an unknown one is an error of the compile, so it is learnt and left out.
#pragma once

#include <string>

#include "pjrt/client.h"

namespace torch_tpu::store {

// If the error says that the plugin does not know an option that we send, remembers it for this plugin and returns
// true: compile_options() then leaves it out.
bool learn_unknown_option(const pjrt::Client& client, const Error& error);

// torch.backends.tpu.allow_excess_precision: may the compiler elide a cast to a narrower dtype and back? Off at first;
// concerns programs requested from then on (the option is part of their key).
bool allow_excess_precision();
void set_allow_excess_precision(bool on);

}  // namespace torch_tpu::store
