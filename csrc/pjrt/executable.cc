#include "pjrt/arguments.h"
#include "pjrt/client.h"

namespace torch_tpu::pjrt {
namespace {

// The device-independent half of an executable, which the facts and the serialiser want.
class Program {
 public:
  static Result<Program> of(const Plugin& plugin, PJRT_LoadedExecutable* loaded) {
    if (abandoned()) return abandoned_error();
    if (loaded == nullptr) return Error{ErrorCode::kInternal, "the executable is empty"};
    Arguments<PJRT_LoadedExecutable_GetExecutable_Args> args(plugin);
    args->loaded_executable = loaded;
    if (Status status = call(plugin, plugin.api()->PJRT_LoadedExecutable_GetExecutable, args); !status.ok())
      return status.error();
    return Program(&plugin, args->executable);
  }
  Program(Program&& o) noexcept : plugin_(o.plugin_), executable_(std::exchange(o.executable_, nullptr)) {}
  Program& operator=(Program&&) = delete;
  ~Program() {
    if (executable_ == nullptr || abandoned()) return;
    Arguments<PJRT_Executable_Destroy_Args> args(*plugin_);
    args->executable = executable_;
    (void)call(*plugin_, plugin_->api()->PJRT_Executable_Destroy, args);
  }
  PJRT_Executable* get() const { return executable_; }

 private:
  Program(const Plugin* plugin, PJRT_Executable* executable) : plugin_(plugin), executable_(executable) {}
  const Plugin* plugin_;
  PJRT_Executable* executable_;
};

}  // namespace

Executable& Executable::operator=(Executable&& o) noexcept {
  if (this != &o) {
    this->~Executable();
    new (this) Executable(std::move(o));
  }
  return *this;
}

Executable::~Executable() {
  if (executable_ == nullptr || abandoned()) return;
  const Plugin& plugin = client_->plugin();
  Arguments<PJRT_LoadedExecutable_Destroy_Args> args(plugin);
  args->executable = executable_;
  (void)call(plugin, plugin.api()->PJRT_LoadedExecutable_Destroy, args);
}

Status Executable::inspect() {
  const Plugin& plugin = client_->plugin();
  Result<Program> program = Program::of(plugin, executable_);
  if (!program.ok()) return program.error();
  Arguments<PJRT_Executable_NumOutputs_Args> outputs(plugin);
  outputs->executable = program.value().get();
  if (Status status = call(plugin, plugin.api()->PJRT_Executable_NumOutputs, outputs); !status.ok()) return status;
  outputs_ = outputs->num_outputs;
  // A portable executable has no devices of its own; one for several devices is told which of them a call is for.
  Arguments<PJRT_LoadedExecutable_AddressableDevices_Args> devices(plugin);
  devices->executable = executable_;
  Status status = call(plugin, plugin.api()->PJRT_LoadedExecutable_AddressableDevices, devices);
  if (status.ok()) one_device_ = devices->num_addressable_devices == 1;
  return status;
}

Result<Event> Executable::execute(const Call& request, PJRT_Buffer** outputs, size_t output_count) const {
  if (abandoned()) return abandoned_error();
  if (submissions_stopped()) return Error{ErrorCode::kUnavailable, "the interpreter is exiting"};
  if (executable_ == nullptr) return Error{ErrorCode::kInternal, "execute: the executable is empty"};
  if (output_count != outputs_)  // the plugin would write past the end
    return Error{ErrorCode::kInternal, "execute: wrong number of outputs, got <" + std::to_string(output_count) +
                                           ">, expected <" + std::to_string(outputs_) + ">"};
  for (size_t i = 0; i < request.argument_count; ++i)
    if (request.arguments[i] == nullptr)
      return Error{ErrorCode::kInternal, "execute: argument <" + std::to_string(i) + "> has no buffer"};
  if (request.device < 0 || request.device >= client_->device_count())
    return Error{ErrorCode::kInvalidArgument, "execute: there is no device <" + std::to_string(request.device) + ">"};

  const Plugin& plugin = client_->plugin();
  Arguments<PJRT_ExecuteOptions> options(plugin);
  options->launch_id = static_cast<int>(request.launch_id);
  options->non_donatable_input_indices = request.non_donatable;
  options->num_non_donatable_input_indices = request.non_donatable_count;

  PJRT_Buffer* const* const argument_lists[1] = {request.arguments};
  PJRT_Buffer** const output_lists[1] = {outputs};
  PJRT_Event* completion[1] = {nullptr};
  Arguments<PJRT_LoadedExecutable_Execute_Args> args(plugin);
  args->executable = executable_;
  args->options = options.get();
  args->argument_lists = argument_lists;
  args->num_devices = 1;
  args->num_args = request.argument_count;
  args->output_lists = output_lists;
  args->device_complete_events = request.want_completion ? completion : nullptr;
  args->execute_device = one_device_ ? nullptr : client_->device(request.device);
  if (Status status = call(plugin, plugin.api()->PJRT_LoadedExecutable_Execute, args); !status.ok())
    return status.error();
  return Event(&plugin, completion[0]);
}

Result<std::string> Executable::serialize() const {
  const Plugin& plugin = client_->plugin();
  const auto function = TORCH_TPU_PJRT_OPTIONAL(plugin, PJRT_Executable_Serialize);
  if (!function) return missing_function("PJRT_Executable_Serialize");
  Result<Program> program = Program::of(plugin, executable_);
  if (!program.ok()) return program.error();
  Arguments<PJRT_Executable_Serialize_Args> args(plugin);
  args->executable = program.value().get();
  if (Status status = call(plugin, function, args); !status.ok()) return status.error();
  std::string blob(args->serialized_bytes, args->serialized_bytes_size);
  if (args->serialized_executable_deleter) args->serialized_executable_deleter(args->serialized_executable);
  return blob;
}

Result<MemoryStats> Executable::memory_stats() const {
  const Plugin& plugin = client_->plugin();
  const auto function = TORCH_TPU_PJRT_OPTIONAL(plugin, PJRT_Executable_GetCompiledMemoryStats);
  if (!function) return missing_function("PJRT_Executable_GetCompiledMemoryStats");
  Result<Program> program = Program::of(plugin, executable_);
  if (!program.ok()) return program.error();
  Arguments<PJRT_Executable_GetCompiledMemoryStats_Args> args(plugin);
  args->executable = program.value().get();
  if (Status status = call(plugin, function, args); !status.ok()) return status.error();
  return MemoryStats{.code = args->generated_code_size_in_bytes,
                     .arguments = args->argument_size_in_bytes,
                     .outputs = args->output_size_in_bytes,
                     .aliased = args->alias_size_in_bytes,
                     .temporaries = args->temp_size_in_bytes,
                     .peak = args->peak_memory_in_bytes};
}

Result<std::map<std::string, double>> Executable::cost_analysis() const {
  std::map<std::string, double> costs;
  const Plugin& plugin = client_->plugin();
  const auto function = TORCH_TPU_PJRT_OPTIONAL(plugin, PJRT_Executable_GetCostAnalysis);
  if (!function) return costs;
  Result<Program> program = Program::of(plugin, executable_);
  if (!program.ok()) return program.error();
  Arguments<PJRT_Executable_GetCostAnalysis_Args> args(plugin);
  args->executable = program.value().get();
  if (Status status = call(plugin, function, args); !status.ok()) {
    if (status.error().code == ErrorCode::kNotImplemented) return costs;
    return status.error();
  }
  // Each element carries its own size, which a newer plugin may have grown.
  const char* at = reinterpret_cast<const char*>(args->properties);
  for (size_t i = 0; i < args->num_properties; ++i) {
    const auto& property = *reinterpret_cast<const PJRT_NamedValue*>(at);
    const std::string name(property.name, property.name_size);
    if (property.type == PJRT_NamedValue_kFloat) costs[name] = property.float_value;
    if (property.type == PJRT_NamedValue_kInt64) costs[name] = static_cast<double>(property.int64_value);
    at += property.struct_size > sizeof(PJRT_NamedValue) ? property.struct_size : sizeof(PJRT_NamedValue);
  }
  return costs;
}

}  // namespace torch_tpu::pjrt
