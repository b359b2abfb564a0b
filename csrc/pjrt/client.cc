#include "pjrt/client.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/env.h"
#include "base/log.h"
#include "pjrt/arguments.h"
#include "pjrt/element_type.h"
#include "pjrt/unbounded.h"

namespace torch_tpu::pjrt {
namespace {

constexpr size_t kZeroCopyAlignment = 64;
constexpr std::string_view kEmbedded = "xla-cpu-pjrt";  // PluginChoice::source

// A program that does nothing: does the plugin take it without a device assignment?
constexpr const char* kIdentity = R"(module @probe {
  "func.func"() ({
  ^bb0(%a: tensor<f32>):
    "func.return"(%a) : (tensor<f32>) -> ()
  }) {function_type = (tensor<f32>) -> tensor<f32>, sym_name = "main"} : () -> ()
}
)";

PJRT_NamedValue device_count_option(const int64_t& count) {
  static constexpr std::string_view kName = "cpu_device_count";
  PJRT_NamedValue option{};
  option.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  option.name = kName.data();
  option.name_size = kName.size();
  option.type = PJRT_NamedValue_kInt64;
  option.int64_value = count;
  option.value_size = 1;
  return option;
}

}  // namespace

Result<std::unique_ptr<Client>> Client::create(const Plugin* plugin, const ClientOptions& options) {
  if (abandoned()) return abandoned_error();
  env::log_unknown();
  std::unique_ptr<Client> client(new Client);
  client->plugin_ = plugin;
  if (Status status = client->open(options); !status.ok()) return status.error();
  if (Status status = client->describe(); !status.ok()) return status.error();
  client->probe();
  log::info("opened " + client->platform_name_ + " with " + std::to_string(client->device_count()) + " devices" +
            (client->host_readable_ ? ", host-readable" : "") + (client->portable_ ? ", portable executables" : ""));
  return client;
}

Client::~Client() {
  if (client_ == nullptr || abandoned()) return;
  Arguments<PJRT_Client_Destroy_Args> args(*plugin_);
  args->client = client_;
  (void)call(*plugin_, plugin_->api()->PJRT_Client_Destroy, args);
}

Status Client::open(const ClientOptions& options) {
  // The engine sizes its thread pools by this variable, once, when the client is made.
  if (options.threads > 0) setenv("PJRT_NPROC", std::to_string(options.threads).c_str(), 1);
  const int64_t count = options.device_count;
  const PJRT_NamedValue option = device_count_option(count);
  Arguments<PJRT_Client_Create_Args> args(*plugin_);
  args->create_options = &option;
  // Plugins other than XLA:CPU refuse options they do not know; they are asked again without.
  args->num_options = plugin_->source() == "libtpu" || plugin_->path().find("libtpu") != std::string::npos ? 0 : 1;
  Status status = call(*plugin_, plugin_->api()->PJRT_Client_Create, args);
  if (!status.ok() && args->num_options == 1 && status.error().code == ErrorCode::kInvalidArgument) {
    args->num_options = 0;
    status = call(*plugin_, plugin_->api()->PJRT_Client_Create, args);
  }
  if (!status.ok())
    return Error{ErrorCode::kUnavailable,
                 "tpu: the PJRT plugin <" + plugin_->path() + "> gave no client: " + status.error().message};
  client_ = args->client;
  return {};
}

Status Client::describe() {
  Arguments<PJRT_Client_PlatformName_Args> name(*plugin_);
  name->client = client_;
  if (Status status = call(*plugin_, plugin_->api()->PJRT_Client_PlatformName, name); !status.ok()) return status;
  platform_name_.assign(name->platform_name, name->platform_name_size);
  Arguments<PJRT_Client_PlatformVersion_Args> version(*plugin_);
  version->client = client_;
  if (Status status = call(*plugin_, plugin_->api()->PJRT_Client_PlatformVersion, version); !status.ok()) return status;
  platform_version_.assign(version->platform_version, version->platform_version_size);
  // Only XLA:CPU has the short cuts and the rule variants of kCpu; anything else is treated as an accelerator.
  platform_ = platform_name_ == "cpu" ? PlatformKind::kCpu : PlatformKind::kTpu;

  Arguments<PJRT_Client_AddressableDevices_Args> devices(*plugin_);
  devices->client = client_;
  if (Status status = call(*plugin_, plugin_->api()->PJRT_Client_AddressableDevices, devices); !status.ok())
    return status;
  devices_.assign(devices->addressable_devices, devices->addressable_devices + devices->num_addressable_devices);
  if (devices_.empty())
    return Error{ErrorCode::kUnavailable, "tpu: the PJRT plugin <" + plugin_->path() + "> has no device"};
  for (PJRT_Device* device : devices_) {
    Arguments<PJRT_Device_GetDescription_Args> description(*plugin_);
    description->device = device;
    if (Status status = call(*plugin_, plugin_->api()->PJRT_Device_GetDescription, description); !status.ok())
      return status;
    Arguments<PJRT_DeviceDescription_Kind_Args> kind(*plugin_);
    kind->device_description = description->device_description;
    if (Status status = call(*plugin_, plugin_->api()->PJRT_DeviceDescription_Kind, kind); !status.ok()) return status;
    kinds_.emplace_back(kind->device_kind, kind->device_kind_size);
    Arguments<PJRT_DeviceDescription_Id_Args> id(*plugin_);
    id->device_description = description->device_description;
    if (Status status = call(*plugin_, plugin_->api()->PJRT_DeviceDescription_Id, id); !status.ok()) return status;
    ids_.push_back(id->id);
  }
  return {};
}

// Note [Probed capabilities]
// What an engine can do is asked by doing it once on a few bytes. A device pointer may be read only where the plugin
// itself says that the buffer is in host memory: on an accelerator the pointer exists and reading it is a fault.
// Portable executables are not tried on accelerators: libtpu takes the option ahead of time, but what it then does with
// Execute is not known.
void Client::probe() {
  const auto on_cpu = TORCH_TPU_PJRT_OPTIONAL(*plugin_, PJRT_Buffer_IsOnCpu);
  const auto pointer = TORCH_TPU_PJRT_OPTIONAL(*plugin_, PJRT_Buffer_OpaqueDeviceMemoryDataPointer);
  const float sent[4] = {1, 2, 3, 4};
  Result<Buffer> buffer = from_host(sent, DType::kF32, {4}, 0);
  if (on_cpu && pointer && buffer.ok() && buffer.value().ready_event().wait().ok()) {
    Arguments<PJRT_Buffer_IsOnCpu_Args> place(*plugin_);
    place->buffer = buffer.value().get();
    Arguments<PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args> address(*plugin_);
    address->buffer = buffer.value().get();
    host_readable_ = call(*plugin_, on_cpu, place).ok() && place->is_on_cpu && call(*plugin_, pointer, address).ok() &&
                     address->device_memory_ptr != nullptr &&
                     std::memcmp(address->device_memory_ptr, sent, sizeof(sent)) == 0;
  }
  // The embedded engine is known to take them; the compile would cost every process 10 ms.
  if (platform_ == PlatformKind::kCpu)
    portable_ = plugin_->source() == kEmbedded || compile(kIdentity, CompileOptions{}).ok();
}

Status Client::check_transfer(DType dtype, const Shape& shape, int device, const char* what) const {
  if (abandoned()) return abandoned_error();
  if (buffer_type(dtype) == PJRT_Buffer_Type_INVALID)
    return Error{ErrorCode::kInternal, std::string(what) + ": invalid dtype"};
  if (device < 0 || device >= device_count())
    return Error{ErrorCode::kInvalidArgument,
                 std::string(what) + ": there is no device <" + std::to_string(device) + ">"};
  if (std::any_of(shape.begin(), shape.end(), [](int64_t size) { return size < 0; }))
    return Error{ErrorCode::kInternal, std::string(what) + ": negative size in " + to_string(shape)};
  return {};
}

Result<Buffer> Client::upload(const void* data, DType dtype, const Shape& shape, int device, int semantics,
                              Event* done) const {
  static const char nothing[kZeroCopyAlignment] = {};
  Arguments<PJRT_Client_BufferFromHostBuffer_Args> args(*plugin_);
  args->client = client_;
  args->data = data ? data : nothing;  // an empty tensor may have no memory
  args->type = buffer_type(dtype);
  args->dims = shape.data();
  args->num_dims = shape.size();
  args->host_buffer_semantics = static_cast<PJRT_HostBufferSemantics>(semantics);
  args->device = devices_[device];
  if (Status status = call(*plugin_, plugin_->api()->PJRT_Client_BufferFromHostBuffer, args); !status.ok())
    return status.error();
  *done = Event(plugin_, args->done_with_host_buffer);
  return Buffer(this, args->buffer);
}

Result<Buffer> Client::from_host(const void* data, DType dtype, const Shape& shape, int device) const {
  if (Status status = check_transfer(dtype, shape, device, "copy to device"); !status.ok()) return status.error();
  if (data == nullptr && element_count(shape) != 0)
    return Error{ErrorCode::kInternal, "copy to device: no host memory"};
  Event done;
  return upload(data, dtype, shape, device, PJRT_HostBufferSemantics_kImmutableOnlyDuringCall, &done);
}

// The engine's event says when it is done with the memory: at once after a copy, and only when the buffer dies after a
// zero-copy import. So nobody may wait for it; it calls `release` whenever it comes. That also covers the imports that
// the engine turns into copies by itself (misaligned memory, platforms without host memory).
Result<Buffer> Client::adopt_host(const void* data, DType dtype, const Shape& shape, int device,
                                  std::function<void()> release) const {
  if (Status status = check_transfer(dtype, shape, device, "import host memory"); !status.ok()) {
    release();
    return status.error();
  }
  if (data == nullptr || element_count(shape) == 0 || reinterpret_cast<uintptr_t>(data) % kZeroCopyAlignment != 0) {
    Result<Buffer> copy = from_host(data, dtype, shape, device);
    release();
    return copy;
  }
  Event done;
  Result<Buffer> buffer = upload(data, dtype, shape, device, PJRT_HostBufferSemantics_kImmutableZeroCopy, &done);
  if (!buffer.ok())
    release();
  else
    done.on_ready([release = std::move(release)](Status) { release(); });
  return buffer;
}

Result<Executable> Client::compile(const std::string& mlir, const CompileOptions& options) const {
  if (abandoned()) return abandoned_error();
  CompileOptions resolved = options;
  if (!options.portable) {
    if (options.device < 0 || options.device >= device_count())
      return Error{ErrorCode::kInvalidArgument, "compile: there is no device <" + std::to_string(options.device) + ">"};
    resolved.device = ids_[options.device];
  }
  // libtpu aborts on a dimension without a bound; the others give an error of their own.
  if (platform_ == PlatformKind::kTpu && has_unbounded_dimension(mlir))
    return Error{ErrorCode::kInvalidArgument, "compile: the program has a dimension without a bound"};
  const std::string encoded = resolved.encode();
  static constexpr std::string_view kFormat = "mlir";
  Arguments<PJRT_Program> program(*plugin_);
  program->code = const_cast<char*>(mlir.data());
  program->code_size = mlir.size();
  program->format = kFormat.data();
  program->format_size = kFormat.size();
  Arguments<PJRT_Client_Compile_Args> args(*plugin_);
  args->client = client_;
  args->program = program.get();
  args->compile_options = encoded.data();
  args->compile_options_size = encoded.size();
  if (Status status = call(*plugin_, plugin_->api()->PJRT_Client_Compile, args); !status.ok()) return status.error();
  Executable executable(this, args->executable);
  if (Status status = executable.inspect(); !status.ok()) return status.error();
  return executable;
}

Result<Executable> Client::deserialize(const std::string& blob) const {
  if (abandoned()) return abandoned_error();
  const auto function = TORCH_TPU_PJRT_OPTIONAL(*plugin_, PJRT_Executable_DeserializeAndLoad);
  if (!function) return missing_function("PJRT_Executable_DeserializeAndLoad");
  Arguments<PJRT_Executable_DeserializeAndLoad_Args> args(*plugin_);
  args->client = client_;
  args->serialized_executable = blob.data();
  args->serialized_executable_size = blob.size();
  if (Status status = call(*plugin_, function, args); !status.ok()) return status.error();
  Executable executable(this, args->loaded_executable);
  if (Status status = executable.inspect(); !status.ok()) return status.error();
  return executable;
}

Result<Client::DeviceMemory> Client::device_memory(int device) const {
  if (abandoned()) return abandoned_error();
  if (device < 0 || device >= device_count())
    return Error{ErrorCode::kInvalidArgument, "memory statistics: there is no device <" + std::to_string(device) + ">"};
  const Error unknown{ErrorCode::kUnavailable, "this engine does not report its memory"};
  const auto function = TORCH_TPU_PJRT_OPTIONAL(*plugin_, PJRT_Device_MemoryStats);
  if (!function) return unknown;
  Arguments<PJRT_Device_MemoryStats_Args> args(*plugin_);
  args->device = devices_[device];
  if (Status status = call(*plugin_, function, args); !status.ok())
    return status.error().code == ErrorCode::kNotImplemented ? unknown : status.error();
  return DeviceMemory{.limit = args->bytes_limit_is_set ? args->bytes_limit : 0,
                      .in_use = args->bytes_in_use,
                      .peak = args->peak_bytes_in_use_is_set ? args->peak_bytes_in_use : args->bytes_in_use};
}

}  // namespace torch_tpu::pjrt
