// Which compiler options a plugin accepts: an unknown one is an error of the compile, so it is learnt and left out.
#pragma once

#include <string>

#include "pjrt/client.h"

namespace torch_tpu::store {

// If the error says that the plugin does not know an option that we send, remembers it for this plugin and returns true:
// compile_options() then leaves it out.
bool learn_unknown_option(const pjrt::Client& client, const Error& error);

}  // namespace torch_tpu::store
