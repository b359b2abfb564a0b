// A plugin with every defect that a loader must survive; TORCH_TPU_TEST_BROKEN names the one to show.
#include <pjrt_c_api.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace {

constexpr char kReason[] = "no thanks";
struct Refusal {
} refusal;

PJRT_Error* refuse(PJRT_Plugin_Initialize_Args*) { return reinterpret_cast<PJRT_Error*>(&refusal); }
void message(PJRT_Error_Message_Args* args) {
  args->message = kReason;
  args->message_size = sizeof(kReason) - 1;
}
PJRT_Error* code(PJRT_Error_GetCode_Args* args) {
  args->code = PJRT_Error_Code_INTERNAL;
  return nullptr;
}
void destroy(PJRT_Error_Destroy_Args*) {}
void unreachable() { std::abort(); }

}  // namespace

extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi() {
  static PJRT_Api api;
  const char* set = std::getenv("TORCH_TPU_TEST_BROKEN");
  const std::string_view mode = set ? set : "";
  if (mode == "null") return nullptr;
  if (mode == "throw") throw std::runtime_error("thrown by GetPjrtApi");
  // Every entry non-null; all but the ones a loader may call abort.
  for (size_t at = offsetof(PJRT_Api, PJRT_Error_Destroy); at < PJRT_Api_STRUCT_SIZE; at += sizeof(void*)) {
    void (*function)() = unreachable;
    std::memcpy(reinterpret_cast<char*>(&api) + at, &function, sizeof(function));
  }
  api.struct_size = mode == "small" ? 24 : PJRT_Api_STRUCT_SIZE;
  api.pjrt_api_version.struct_size = PJRT_Api_Version_STRUCT_SIZE;
  api.pjrt_api_version.major_version = mode == "major" ? 7 : PJRT_API_MAJOR;
  api.pjrt_api_version.minor_version = mode == "major" ? 3 : PJRT_API_MINOR;
  api.PJRT_Error_Destroy = destroy;
  api.PJRT_Error_Message = message;
  api.PJRT_Error_GetCode = code;
  api.PJRT_Plugin_Initialize = refuse;
  if (mode == "hole") api.PJRT_Client_Compile = nullptr;
  return &api;
}
