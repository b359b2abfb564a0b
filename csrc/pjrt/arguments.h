// Argument structs of the PJRT C API and calls with them.
//
// Note [Argument structs]
// Every PJRT function takes one struct that begins with its own size. A plugin older than our header ignores the fields
// it does not know. A newer one refuses structs that are smaller than its own, so it gets a larger size and zeros
// behind the fields we know: zero is the default of every PJRT field. Plugins of our own age get the exact size.
#pragma once

#include <pjrt_c_api.h>

#include <exception>
#include <string>

#include "pjrt/plugin.h"

namespace torch_tpu::pjrt {

constexpr size_t kArgumentTail = 128;

template <typename Struct>
class Arguments {
 public:
  explicit Arguments(const Plugin& plugin) : struct_{} {
    struct_.struct_size = sizeof(Struct) + plugin.argument_tail();
  }
  Struct* operator->() { return &struct_; }
  Struct* get() { return &struct_; }

 private:
  Struct struct_;
  char tail_[kArgumentTail] = {};
};

// Calls a PJRT function. Plugins are C++: some let exceptions escape, which must not reach PyTorch's threads.
template <typename Function, typename Struct>
Status call(const Plugin& plugin, Function* function, Arguments<Struct>& arguments) {
  try {
    PJRT_Error* error = function(arguments.get());
    if (error == nullptr) [[likely]]
      return {};
    return plugin.status(error);
  } catch (const std::exception& e) {
    return Error{ErrorCode::kInternal, std::string("the PJRT plugin threw an exception: ") + e.what()};
  } catch (...) {
    return Error{ErrorCode::kInternal, "the PJRT plugin threw an exception"};
  }
}

// The entry of a function that a plugin may lack, or null.
#define TORCH_TPU_PJRT_OPTIONAL(plugin, name) ((plugin).has(offsetof(PJRT_Api, name)) ? (plugin).api()->name : nullptr)

inline Error missing_function(const char* name) {
  return Error{ErrorCode::kNotImplemented, std::string("the PJRT plugin has no ") + name};
}

inline Error abandoned_error() {
  return Error{ErrorCode::kUnavailable,
               "tpu: the engine is gone (this is a forked child or the interpreter is exiting)"};
}

}  // namespace torch_tpu::pjrt
