// Errors of the test plugin's own, next to those of the engine behind it.
#pragma once

#include <pjrt_c_api.h>

#include <memory>
#include <string>

namespace torch_tpu::test_plugin {

// A failure as a value; code OK means none.
struct Failure {
  PJRT_Error_Code code = PJRT_Error_Code_OK;
  std::string message;
  explicit operator bool() const { return code != PJRT_Error_Code_OK; }
};

// An error for the caller, who destroys it; null for no failure.
PJRT_Error* make_error(const Failure& failure);
// Reads and destroys an error of the engine.
Failure take_target_error(const PJRT_Api* target, PJRT_Error* error);

// Replaces the three error functions of `api` by ones that know both kinds.
void install_error_functions(const PJRT_Api* target, PJRT_Api* api);

}  // namespace torch_tpu::test_plugin
