// The test plugin: forwards to the engine that TORCH_TPU_TEST_PLUGIN_TARGET names, behaving as README.md says.
//
// Note [Forwarding]
// The function table is a copy of the engine's, so everything that is not replaced below goes straight through, and
// handles are the engine's own. Only events and injected errors are objects of this plugin: no engine event ever
// reaches the caller.
#include <dlfcn.h>
#include <pjrt_c_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "buffer_facts.h"
#include "faults.h"
#include "late_event.h"
#include "mode.h"

namespace torch_tpu::test_plugin {
namespace {

const PJRT_Api* engine = nullptr;
Mode mode;

BufferFacts& buffers() {
  static BufferFacts* const instance = new BufferFacts;
  return *instance;
}

PJRT_Error* unimplemented(const char* what) {
  return make_error({PJRT_Error_Code_UNIMPLEMENTED, std::string("test plugin: no ") + what + " on this device"});
}

Clock::time_point random_due() {
  if (mode.late_ms <= 0) return Clock::now();
  static std::mutex mutex;
  static std::mt19937 random(std::random_device{}());
  std::lock_guard lock(mutex);
  const double late = std::uniform_real_distribution<double>(0, mode.late_ms)(random);
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(late));
}

void destroy_buffer(PJRT_Buffer* buffer) {
  PJRT_Buffer_Destroy_Args args{};
  args.struct_size = PJRT_Buffer_Destroy_Args_STRUCT_SIZE;
  args.buffer = buffer;
  take_target_error(engine, engine->PJRT_Buffer_Destroy(&args));
}

// --- client ------------------------------------------------------------------------------------------------------

PJRT_Error* platform_name(PJRT_Client_PlatformName_Args* args) {
  PJRT_Error* error = engine->PJRT_Client_PlatformName(args);
  if (error || mode.platform.empty()) return error;
  args->platform_name = mode.platform.data();
  args->platform_name_size = mode.platform.size();
  return nullptr;
}

PJRT_Error* device_kind(PJRT_DeviceDescription_Kind_Args* args) {
  PJRT_Error* error = engine->PJRT_DeviceDescription_Kind(args);
  if (error || mode.platform != "tpu") return error;
  static constexpr std::string_view kKind = "TPU test";
  args->device_kind = kKind.data();
  args->device_kind_size = kKind.size();
  return nullptr;
}

// Field 4 of CompileOptionsProto, looked for among the top-level fields only.
bool asks_for_portable(const char* bytes, size_t size) {
  const auto* at = reinterpret_cast<const unsigned char*>(bytes);
  const auto* end = at + size;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0; at < end && shift < 64; shift += 7) {
      const unsigned char byte = *at++;
      value |= uint64_t{byte & 0x7fu} << shift;
      if (!(byte & 0x80)) break;
    }
    return value;
  };
  bool portable = false;
  while (at < end) {
    const uint64_t tag = varint();
    if ((tag & 7) == 0) {
      const uint64_t value = varint();
      if (tag >> 3 == 4) portable = value != 0;
    } else if ((tag & 7) == 2) {
      const uint64_t length = varint();
      at += std::min<uint64_t>(length, static_cast<uint64_t>(end - at));
    } else {
      at += std::min<ptrdiff_t>((tag & 7) == 1 ? 8 : 4, end - at);
    }
  }
  return portable;
}

// Milliseconds that the compile of a region takes at least.
std::atomic<int> region_compile_ms{0};

bool is_region(const PJRT_Program& program) {
  return std::string_view(program.code, program.code_size).find("func.call") != std::string_view::npos;
}

PJRT_Error* compile(PJRT_Client_Compile_Args* args) {
  if (Failure failure = next_fault(Fault::kCompile)) return make_error(failure);
  if (is_region(*args->program)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(region_compile_ms.load()));
    if (Failure failure = next_fault(Fault::kCompileRegion)) return make_error(failure);
  }
  if (!mode.portable && asks_for_portable(args->compile_options, args->compile_options_size))
    return make_error({PJRT_Error_Code_INVALID_ARGUMENT, "test plugin: portable executables are not supported"});
  return engine->PJRT_Client_Compile(args);
}

PJRT_Error* upload(PJRT_Client_BufferFromHostBuffer_Args* args) {
  if (Failure failure = next_fault(Fault::kUpload)) return make_error(failure);
  if (!mode.zero_copy) args->host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  if (PJRT_Error* error = engine->PJRT_Client_BufferFromHostBuffer(args)) return error;
  buffers().set(args->buffer, {random_due(), {}});
  // Done later than the buffer is ready, or earlier: the two have nothing to do with each other.
  args->done_with_host_buffer = make_late_event(args->done_with_host_buffer, random_due());
  return nullptr;
}

PJRT_Error* create_view(PJRT_Client_CreateViewOfDeviceBuffer_Args* args) {
  return mode.zero_copy ? engine->PJRT_Client_CreateViewOfDeviceBuffer(args) : unimplemented("views of host memory");
}

// --- execute -----------------------------------------------------------------------------------------------------

// The latest due time and the first poison of all arguments.
Facts facts_of_arguments(const PJRT_LoadedExecutable_Execute_Args& args) {
  Facts all;
  for (size_t device = 0; device < args.num_devices; ++device) {
    for (size_t i = 0; i < args.num_args; ++i) {
      Facts facts = buffers().get(args.argument_lists[device][i]);
      all.due = std::max(all.due, facts.due);
      if (!all.poison) all.poison = std::move(facts.poison);
    }
  }
  return all;
}

size_t output_count(PJRT_LoadedExecutable* loaded) {
  PJRT_LoadedExecutable_GetExecutable_Args get{};
  get.struct_size = PJRT_LoadedExecutable_GetExecutable_Args_STRUCT_SIZE;
  get.loaded_executable = loaded;
  if (take_target_error(engine, engine->PJRT_LoadedExecutable_GetExecutable(&get))) return 0;
  PJRT_Executable_NumOutputs_Args count{};
  count.struct_size = PJRT_Executable_NumOutputs_Args_STRUCT_SIZE;
  count.executable = get.executable;
  take_target_error(engine, engine->PJRT_Executable_NumOutputs(&count));
  PJRT_Executable_Destroy_Args gone{};
  gone.struct_size = PJRT_Executable_Destroy_Args_STRUCT_SIZE;
  gone.executable = get.executable;
  take_target_error(engine, engine->PJRT_Executable_Destroy(&gone));
  return count.num_outputs;
}

void discard_results(PJRT_LoadedExecutable_Execute_Args* args, size_t outputs) {
  for (size_t device = 0; device < args->num_devices; ++device) {
    for (size_t i = 0; i < outputs; ++i) destroy_buffer(std::exchange(args->output_lists[device][i], nullptr));
    if (!args->device_complete_events) continue;
    PJRT_Event_Destroy_Args gone{};
    gone.struct_size = PJRT_Event_Destroy_Args_STRUCT_SIZE;
    gone.event = std::exchange(args->device_complete_events[device], nullptr);
    take_target_error(engine, engine->PJRT_Event_Destroy(&gone));
  }
}

PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args* args) {
  if (Failure failure = next_fault(Fault::kExecute)) return make_error(failure);
  if (!mode.portable && args->execute_device) return unimplemented("choice of a device at execution");
  const Facts arguments = facts_of_arguments(*args);
  if (PJRT_Error* error = engine->PJRT_LoadedExecutable_Execute(args)) return error;
  const size_t outputs = output_count(args->executable);
  if (Failure failure = next_fault(Fault::kExecuteAfter)) {
    discard_results(args, outputs);
    return make_error(failure);
  }
  // Never ready before an argument, but in any order with other executions.
  const Clock::time_point due = std::max(arguments.due, random_due());
  for (size_t device = 0; device < args->num_devices; ++device) {
    for (size_t i = 0; i < outputs; ++i) {
      Failure poison = next_fault(Fault::kOutput);
      buffers().set(args->output_lists[device][i], {due, poison ? poison : arguments.poison});
    }
    if (args->device_complete_events)
      args->device_complete_events[device] =
          make_late_event(args->device_complete_events[device], due, arguments.poison);
  }
  return nullptr;
}

// --- buffers -----------------------------------------------------------------------------------------------------

PJRT_Error* buffer_destroy(PJRT_Buffer_Destroy_Args* args) {
  buffers().forget(args->buffer);
  return engine->PJRT_Buffer_Destroy(args);
}

PJRT_Error* ready_event(PJRT_Buffer_ReadyEvent_Args* args) {
  if (PJRT_Error* error = engine->PJRT_Buffer_ReadyEvent(args)) return error;
  Facts facts = buffers().get(args->buffer);
  args->event = make_late_event(args->event, facts.due, std::move(facts.poison));
  return nullptr;
}

// The engine writes to a staging copy, which reaches the caller's memory just before the event is ready: whoever reads
// without waiting reads the old bytes.
PJRT_Error* to_host(PJRT_Buffer_ToHostBuffer_Args* args) {
  if (!args->dst) return engine->PJRT_Buffer_ToHostBuffer(args);
  if (Failure failure = next_fault(Fault::kDownload)) return make_error(failure);
  auto staging = std::make_shared<std::vector<char>>(args->dst_size);
  void* destination = std::exchange(args->dst, staging->data());
  PJRT_Error* error = engine->PJRT_Buffer_ToHostBuffer(args);
  args->dst = destination;
  if (error) return error;
  Facts facts = buffers().get(args->src);
  args->event = make_late_event(args->event, std::max(facts.due, random_due()), std::move(facts.poison),
                                [staging, destination] { std::memcpy(destination, staging->data(), staging->size()); });
  return nullptr;
}

PJRT_Error* copy_raw_to_host(PJRT_Buffer_CopyRawToHost_Args* args) {
  if (PJRT_Error* error = engine->PJRT_Buffer_CopyRawToHost(args)) return error;
  Facts facts = buffers().get(args->buffer);
  args->event = make_late_event(args->event, std::max(facts.due, random_due()), std::move(facts.poison));
  return nullptr;
}

void remember_copy(PJRT_Buffer* from, PJRT_Buffer* to) {
  Facts facts = buffers().get(from);
  facts.due = std::max(facts.due, random_due());
  buffers().set(to, std::move(facts));
}

PJRT_Error* copy_to_device(PJRT_Buffer_CopyToDevice_Args* args) {
  PJRT_Error* error = engine->PJRT_Buffer_CopyToDevice(args);
  if (!error) remember_copy(args->buffer, args->dst_buffer);
  return error;
}

PJRT_Error* copy_to_memory(PJRT_Buffer_CopyToMemory_Args* args) {
  PJRT_Error* error = engine->PJRT_Buffer_CopyToMemory(args);
  if (!error) remember_copy(args->buffer, args->dst_buffer);
  return error;
}

PJRT_Error* is_on_cpu(PJRT_Buffer_IsOnCpu_Args* args) {
  PJRT_Error* error = engine->PJRT_Buffer_IsOnCpu(args);
  if (!error && !mode.host_pointers) args->is_on_cpu = false;
  return error;
}

PJRT_Error* host_pointer(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args* args) {
  if (!mode.host_pointers) return unimplemented("pointers to device memory");
  if (Failure poison = buffers().get(args->buffer).poison) return make_error(poison);
  return engine->PJRT_Buffer_OpaqueDeviceMemoryDataPointer(args);
}

PJRT_Error* unsafe_pointer(PJRT_Buffer_UnsafePointer_Args* args) {
  return mode.host_pointers ? engine->PJRT_Buffer_UnsafePointer(args) : unimplemented("pointers to device memory");
}

PJRT_Error* transfer_data(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args* args) {
  if (PJRT_Error* error = engine->PJRT_AsyncHostToDeviceTransferManager_TransferData(args)) return error;
  args->done_with_h2d_transfer = make_late_event(args->done_with_h2d_transfer, random_due());
  return nullptr;
}

// --- loading -----------------------------------------------------------------------------------------------------

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

const PJRT_Api* open_engine() {
  const std::string path = variable("TORCH_TPU_TEST_PLUGIN_TARGET");
  if (path.empty()) return nullptr;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    std::fprintf(stderr, "test plugin: %s\n", dlerror());
    return nullptr;
  }
  const auto get_api = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"));
  return get_api ? get_api() : nullptr;
}

const PJRT_Api* make_api() {
  engine = open_engine();
  if (!engine) {
    std::fprintf(stderr, "test plugin: set TORCH_TPU_TEST_PLUGIN_TARGET to the engine's library\n");
    return nullptr;
  }
  std::optional<Mode> parsed = parse_mode(variable("TORCH_TPU_TEST_PLUGIN_MODE"));
  if (!parsed || !order_faults(variable("TORCH_TPU_TEST_PLUGIN_FAULTS"))) {
    std::fprintf(stderr, "test plugin: TORCH_TPU_TEST_PLUGIN_MODE or _FAULTS has an unknown word\n");
    return nullptr;
  }
  mode = *parsed;
  // As large as the engine's own table, which may be newer than our header.
  const size_t size = std::max<size_t>(engine->struct_size, PJRT_Api_STRUCT_SIZE);
  auto* api = static_cast<PJRT_Api*>(std::calloc(1, size));
  std::memcpy(api, engine, engine->struct_size);
  install_error_functions(engine, api);
  install_event_functions(engine, api);
  api->PJRT_Client_PlatformName = platform_name;
  api->PJRT_DeviceDescription_Kind = device_kind;
  api->PJRT_Client_Compile = compile;
  api->PJRT_Client_BufferFromHostBuffer = upload;
  api->PJRT_Client_CreateViewOfDeviceBuffer = create_view;
  api->PJRT_LoadedExecutable_Execute = execute;
  api->PJRT_Buffer_Destroy = buffer_destroy;
  api->PJRT_Buffer_ReadyEvent = ready_event;
  api->PJRT_Buffer_ToHostBuffer = to_host;
  api->PJRT_Buffer_CopyRawToHost = copy_raw_to_host;
  api->PJRT_Buffer_CopyToDevice = copy_to_device;
  api->PJRT_Buffer_CopyToMemory = copy_to_memory;
  api->PJRT_Buffer_IsOnCpu = is_on_cpu;
  api->PJRT_Buffer_OpaqueDeviceMemoryDataPointer = host_pointer;
  api->PJRT_Buffer_UnsafePointer = unsafe_pointer;
  api->PJRT_AsyncHostToDeviceTransferManager_TransferData = transfer_data;
  return api;
}

}  // namespace
}  // namespace torch_tpu::test_plugin

#define EXPORTED extern "C" __attribute__((visibility("default")))

using namespace torch_tpu::test_plugin;  // NOLINT(google-build-using-namespace): the C interface below

EXPORTED const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api* const api = make_api();
  return api;
}

EXPORTED void torch_tpu_test_plugin_fail_execute(int n, int code) {
  order_fault(Fault::kExecute, n, 1, static_cast<PJRT_Error_Code>(code));
}
EXPORTED void torch_tpu_test_plugin_fail_execute_after(int n, int code) {
  order_fault(Fault::kExecuteAfter, n, 1, static_cast<PJRT_Error_Code>(code));
}
EXPORTED void torch_tpu_test_plugin_poison_output(int n, int code) {
  order_fault(Fault::kOutput, n, 1, static_cast<PJRT_Error_Code>(code));
}
EXPORTED void torch_tpu_test_plugin_fail_upload(int n, int code) {
  order_fault(Fault::kUpload, n, 1, static_cast<PJRT_Error_Code>(code));
}
EXPORTED void torch_tpu_test_plugin_fail_download(int n, int code) {
  order_fault(Fault::kDownload, n, 1, static_cast<PJRT_Error_Code>(code));
}
EXPORTED void torch_tpu_test_plugin_fail_compile(int n, int code) {
  order_fault(Fault::kCompile, n, 1, static_cast<PJRT_Error_Code>(code));
}
EXPORTED void torch_tpu_test_plugin_slow_regions(int milliseconds) { region_compile_ms.store(milliseconds); }
EXPORTED long torch_tpu_test_plugin_region_compiles() { return calls(Fault::kCompileRegion); }
EXPORTED int torch_tpu_test_plugin_order_faults(const char* list) { return order_faults(list) ? 1 : 0; }
EXPORTED void torch_tpu_test_plugin_cancel_faults() { cancel_faults(); }
EXPORTED void torch_tpu_test_plugin_hold_events(int hold) { hold_events(hold != 0); }
EXPORTED long torch_tpu_test_plugin_executions() { return calls(Fault::kExecute); }
EXPORTED long torch_tpu_test_plugin_live_buffers() { return static_cast<long>(buffers().count()); }
