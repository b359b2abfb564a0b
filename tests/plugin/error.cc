#include "error.h"

#include <map>
#include <mutex>

namespace torch_tpu::test_plugin {
namespace {

const PJRT_Api* engine = nullptr;

// The engine's errors are opaque, so ours are known by their address.
struct Own {
  std::mutex mutex;
  std::map<const PJRT_Error*, std::unique_ptr<Failure>> errors;

  const Failure* find(const PJRT_Error* error) {
    std::lock_guard lock(mutex);
    auto it = errors.find(error);
    return it == errors.end() ? nullptr : it->second.get();
  }
};
Own& own() {
  static Own* const instance = new Own;
  return *instance;
}

void destroy(PJRT_Error_Destroy_Args* args) {
  {
    std::lock_guard lock(own().mutex);
    if (own().errors.erase(args->error) != 0) return;
  }
  engine->PJRT_Error_Destroy(args);
}

void message(PJRT_Error_Message_Args* args) {
  const Failure* failure = own().find(args->error);
  if (!failure) return engine->PJRT_Error_Message(args);
  args->message = failure->message.data();
  args->message_size = failure->message.size();
}

PJRT_Error* code(PJRT_Error_GetCode_Args* args) {
  const Failure* failure = own().find(args->error);
  if (!failure) return engine->PJRT_Error_GetCode(args);
  args->code = failure->code;
  return nullptr;
}

}  // namespace

PJRT_Error* make_error(const Failure& failure) {
  if (!failure) return nullptr;
  auto copy = std::make_unique<Failure>(failure);
  auto* error = reinterpret_cast<PJRT_Error*>(copy.get());
  std::lock_guard lock(own().mutex);
  own().errors.emplace(error, std::move(copy));
  return error;
}

Failure take_target_error(const PJRT_Api* target, PJRT_Error* error) {
  if (!error) return {};
  PJRT_Error_Message_Args text{};
  text.struct_size = PJRT_Error_Message_Args_STRUCT_SIZE;
  text.error = error;
  target->PJRT_Error_Message(&text);
  PJRT_Error_GetCode_Args number{};
  number.struct_size = PJRT_Error_GetCode_Args_STRUCT_SIZE;
  number.error = error;
  target->PJRT_Error_GetCode(&number);
  Failure failure{number.code, std::string(text.message, text.message_size)};
  PJRT_Error_Destroy_Args gone{};
  gone.struct_size = PJRT_Error_Destroy_Args_STRUCT_SIZE;
  gone.error = error;
  target->PJRT_Error_Destroy(&gone);
  return failure;
}

void install_error_functions(const PJRT_Api* target, PJRT_Api* api) {
  engine = target;
  api->PJRT_Error_Destroy = destroy;
  api->PJRT_Error_Message = message;
  api->PJRT_Error_GetCode = code;
}

}  // namespace torch_tpu::test_plugin
