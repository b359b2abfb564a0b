#include "pjrt/plugin.h"

#include <dlfcn.h>
#include <pjrt_c_api.h>
#include <sys/stat.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <utility>

#include "base/env.h"
#include "base/hash.h"
#include "base/log.h"
#include "pjrt/arguments.h"
#include "pjrt/hash_memo.h"
#include "pjrt/shared_object.h"

namespace torch_tpu::pjrt {
namespace {

struct Required {
  size_t offset;
  const char* name;
};
#define REQUIRED(name) \
  Required { offsetof(PJRT_Api, name), #name }

// Without these nothing works; they are as old as the C API. Checked once, so that calls need not look.
constexpr Required kRequired[] = {
    REQUIRED(PJRT_Error_Destroy),
    REQUIRED(PJRT_Error_Message),
    REQUIRED(PJRT_Error_GetCode),
    REQUIRED(PJRT_Plugin_Initialize),
    REQUIRED(PJRT_Event_Destroy),
    REQUIRED(PJRT_Event_IsReady),
    REQUIRED(PJRT_Event_Error),
    REQUIRED(PJRT_Event_Await),
    REQUIRED(PJRT_Event_OnReady),
    REQUIRED(PJRT_Client_Create),
    REQUIRED(PJRT_Client_Destroy),
    REQUIRED(PJRT_Client_PlatformName),
    REQUIRED(PJRT_Client_PlatformVersion),
    REQUIRED(PJRT_Client_AddressableDevices),
    REQUIRED(PJRT_Client_Compile),
    REQUIRED(PJRT_Client_BufferFromHostBuffer),
    REQUIRED(PJRT_DeviceDescription_Id),
    REQUIRED(PJRT_DeviceDescription_Kind),
    REQUIRED(PJRT_Device_GetDescription),
    REQUIRED(PJRT_Executable_Destroy),
    REQUIRED(PJRT_Executable_NumOutputs),
    REQUIRED(PJRT_LoadedExecutable_Destroy),
    REQUIRED(PJRT_LoadedExecutable_GetExecutable),
    REQUIRED(PJRT_LoadedExecutable_AddressableDevices),
    REQUIRED(PJRT_LoadedExecutable_Execute),
    REQUIRED(PJRT_Buffer_Destroy),
    REQUIRED(PJRT_Buffer_ElementType),
    REQUIRED(PJRT_Buffer_Dimensions),
    REQUIRED(PJRT_Buffer_OnDeviceSizeInBytes),
    REQUIRED(PJRT_Buffer_IsDeleted),
    REQUIRED(PJRT_Buffer_ToHostBuffer),
    REQUIRED(PJRT_Buffer_ReadyEvent),
};
#undef REQUIRED

ErrorCode code_of(PJRT_Error_Code code) {
  switch (code) {
    case PJRT_Error_Code_INVALID_ARGUMENT:
      return ErrorCode::kInvalidArgument;
    case PJRT_Error_Code_RESOURCE_EXHAUSTED:
      return ErrorCode::kOutOfMemory;
    case PJRT_Error_Code_UNIMPLEMENTED:
      return ErrorCode::kNotImplemented;
    case PJRT_Error_Code_UNAVAILABLE:
      return ErrorCode::kUnavailable;
    default:
      return ErrorCode::kInternal;
  }
}

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

// What plugins read when they are loaded. A user's own setting is never touched.
void prepare_environment(const PluginChoice& choice) {
  // Plugins log every start-up detail to stderr; 2 leaves errors.
  setenv("TF_CPP_MIN_LOG_LEVEL", log::enabled(log::Level::kDebug) ? "0" : "2", 0);
  if (choice.path.find("libtpu") == std::string::npos) return;
  if (!tpu_present()) {
    // There is no metadata server to ask (the query can hang) and no chip that two processes could fight over.
    setenv("TPU_SKIP_MDS_QUERY", "1", 0);
    setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1", 0);
  } else if (is_set("TPU_VISIBLE_CHIPS") || is_set("TPU_VISIBLE_DEVICES") || is_set("TPU_CHIPS_PER_PROCESS_BOUNDS")) {
    // The user has divided the chips between processes, so several of them must be able to load libtpu. Otherwise its
    // own check stays on: it gives the clear error when another process holds the chips.
    setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1", 0);
  }
}

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<const Plugin>> plugins;
};

// Never destroyed: threads of a plugin may outlive main().
Registry& registry() {
  static Registry* const instance = new Registry;
  return *instance;
}

Error unusable(const std::string& path, const std::string& why) {
  return Error{ErrorCode::kUnavailable, "tpu: cannot use the PJRT plugin <" + path + ">: " + why};
}

}  // namespace

Result<PluginChoice> choose_plugin(const std::string& libtpu, const std::string& embedded) {
  if (std::string path = env::string("TORCH_TPU_PJRT_PLUGIN"); !path.empty())
    return PluginChoice{std::move(path), "TORCH_TPU_PJRT_PLUGIN"};
  Result<bool> allowed = env::flag("TORCH_TPU_EMBEDDED");
  if (!allowed.ok()) return allowed.error();
  const bool tpu = tpu_present();
  if (tpu && !libtpu.empty()) return PluginChoice{libtpu, "libtpu"};
  if (allowed.value() && !embedded.empty()) {
    if (tpu)
      log::warn(
          "this machine has a TPU but libtpu is not installed, so the embedded engine is used: pip install libtpu");
    return PluginChoice{embedded, "xla-cpu-pjrt"};
  }
  if (tpu)
    return Error{ErrorCode::kUnavailable,
                 "tpu: this machine has a TPU but libtpu is not installed: pip install libtpu"};
  if (!allowed.value())
    return Error{ErrorCode::kUnavailable,
                 "tpu: this machine has no TPU and TORCH_TPU_EMBEDDED=0 turns the embedded engine off"};
  return Error{
      ErrorCode::kUnavailable,
      "tpu: this machine has no TPU and the embedded engine is not installed: pip install xla-cpu-pjrt==0.0.1"};
}

Result<const Plugin*> Plugin::load(const PluginChoice& choice) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  if (auto it = r.plugins.find(choice.path); it != r.plugins.end()) return it->second.get();
  if (std::string why = why_not_loadable(choice.path); !why.empty()) return unusable(choice.path, why);
  prepare_environment(choice);
  // Never closed again: a plugin has threads and registries that outlive every handle.
  void* library = dlopen(choice.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return unusable(choice.path, why ? why : "dlopen failed");
  }
  using GetPjrtApi = const PJRT_Api* (*)();
  const auto get_api = reinterpret_cast<GetPjrtApi>(dlsym(library, "GetPjrtApi"));
  if (get_api == nullptr) return unusable(choice.path, "it has no function GetPjrtApi, so it is not a PJRT plugin");
  std::unique_ptr<Plugin> plugin(new Plugin);
  plugin->choice_ = choice;
  try {
    plugin->api_ = get_api();
  } catch (...) {
    return unusable(choice.path, "GetPjrtApi threw an exception");
  }
  if (Status status = plugin->initialize(); !status.ok()) return unusable(choice.path, status.error().message);
  const Plugin* loaded = plugin.get();
  r.plugins.emplace(choice.path, std::move(plugin));
  log::info("loaded the PJRT plugin " + choice.path + " (API 0." + std::to_string(loaded->api_minor()) + ")");
  return loaded;
}

Status Plugin::initialize() {
  const auto refuse = [](std::string why) { return Error{ErrorCode::kUnavailable, std::move(why)}; };
  if (api_ == nullptr) return refuse("GetPjrtApi returned null");
  if (api_->struct_size < offsetof(PJRT_Api, PJRT_Error_Destroy)) return refuse("its function table is too small");
  const PJRT_Api_Version& version = api_->pjrt_api_version;
  if (version.major_version != PJRT_API_MAJOR)
    return refuse("it speaks PJRT API " + std::to_string(version.major_version) + "." +
                  std::to_string(version.minor_version) + ", expected major version " + std::to_string(PJRT_API_MAJOR));
  for (const Required& required : kRequired)
    if (!has(required.offset)) return refuse("its function table lacks " + std::string(required.name));
  if (version.minor_version > PJRT_API_MINOR) tail_ = kArgumentTail;
  Arguments<PJRT_Plugin_Initialize_Args> args(*this);
  return call(*this, api_->PJRT_Plugin_Initialize, args);
}

int Plugin::api_minor() const { return api_->pjrt_api_version.minor_version; }

const std::string& Plugin::content_hash() const {
  std::call_once(hash_once_, [this] { hash_ = memoized_file_hash(choice_.path); });
  return hash_;
}

bool Plugin::has(size_t offset) const {
  if (offset + sizeof(void*) > api_->struct_size) return false;
  return *reinterpret_cast<void* const*>(reinterpret_cast<const char*>(api_) + offset) != nullptr;
}

Status Plugin::status(PJRT_Error* error) const {
  if (error == nullptr) return {};
  Arguments<PJRT_Error_Message_Args> message(*this);
  message->error = error;
  api_->PJRT_Error_Message(message.get());
  Arguments<PJRT_Error_GetCode_Args> code(*this);
  code->error = error;
  code->code = PJRT_Error_Code_UNKNOWN;
  PJRT_Error* nested = api_->PJRT_Error_GetCode(code.get());
  Error result{
      nested ? ErrorCode::kInternal : code_of(code->code),
      message->message ? std::string(message->message, message->message_size) : "the PJRT plugin gave no reason"};
  for (PJRT_Error* e : {nested, error}) {
    if (e == nullptr) continue;
    Arguments<PJRT_Error_Destroy_Args> destroy(*this);
    destroy->error = e;
    api_->PJRT_Error_Destroy(destroy.get());
  }
  return result;
}

}  // namespace torch_tpu::pjrt
