// Client, buffers, executables, events: thin RAII handles over the PJRT C API.
//
// Handles are movable, destroyed exactly once, and become inert after `abandon_all()` (in a forked child and at exit):
// then every destructor is a no-op. All functions are thread-safe; none takes the GIL.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "base/shape.h"
#include "pjrt/plugin.h"

struct PJRT_Buffer;
struct PJRT_Client;
struct PJRT_Device;
struct PJRT_Event;
struct PJRT_LoadedExecutable;

namespace torch_tpu::pjrt {

class Client;

// After this call no handle of this process talks to a plugin any more (fork child, interpreter exit).
void abandon_all();
bool abandoned();
// After this call nothing is submitted any more; what is under way can still be waited for and read.
void stop_submissions();
bool submissions_stopped();

class Event {
 public:
  Event() = default;
  Event(const Plugin* plugin, PJRT_Event* event) : plugin_(plugin), event_(event) {}
  Event(Event&& o) noexcept
      : plugin_(o.plugin_), event_(std::exchange(o.event_, nullptr)), failure_(std::move(o.failure_)) {}
  Event& operator=(Event&& o) noexcept;
  ~Event();
  // An event that is ready and carries `error`.
  static Event failed(Error error);
  explicit operator bool() const { return event_ != nullptr || failure_ != nullptr; }
  bool ready() const;   // also true when the event carries an error
  Status wait() const;  // blocks; the event's error. An empty event is ready and carries none
  // Calls `fn` once when ready (possibly at once, possibly on an engine thread). `fn` must not block; what it throws is
  // dropped. It may outlive this object.
  void on_ready(std::function<void(Status)> fn) const;

 private:
  const Plugin* plugin_ = nullptr;
  PJRT_Event* event_ = nullptr;
  std::unique_ptr<Error> failure_;  // set instead of event_ when there was no event to be had
};

class Buffer {
 public:
  Buffer() = default;
  Buffer(const Client* client, PJRT_Buffer* buffer) : client_(client), buffer_(buffer) {}
  Buffer(Buffer&& o) noexcept : client_(o.client_), buffer_(std::exchange(o.buffer_, nullptr)) {}
  Buffer& operator=(Buffer&& o) noexcept;
  ~Buffer();
  explicit operator bool() const { return buffer_ != nullptr; }
  PJRT_Buffer* get() const { return buffer_; }
  Event ready_event() const;
  bool deleted() const;
  // Host-readable address of the contents (embedded engine only): kUnavailable elsewhere. Wait for ready first.
  Result<const void*> host_pointer() const;
  // Copies the contents, row-major, to `destination`; returns an event. `bytes` must be the exact size.
  Result<Event> to_host(void* destination, size_t bytes) const;
  Result<Buffer> copy_to_device(int device) const;
  // Bytes on the device (padded size where the platform pads).
  Result<int64_t> device_bytes() const;

 private:
  const Client* client_ = nullptr;
  PJRT_Buffer* buffer_ = nullptr;
};

// env_option_overrides of a compile request.
using OptionValue = std::variant<std::string, bool, int64_t, double>;
struct CompileOptions {
  std::map<std::string, OptionValue> overrides = {};
  bool portable = true;  // an executable that runs on any device
  int device = 0;        // used when not portable: Client::compile() takes an ordinal
  // Serialised CompileOptionsProto, written by hand (engine.md, part II section 3).
  std::string encode() const;
};

struct MemoryStats {
  int64_t code = 0, arguments = 0, outputs = 0, aliased = 0, temporaries = 0, peak = 0;
};

class Executable {
 public:
  Executable() = default;
  Executable(Executable&& o) noexcept
      : client_(o.client_),
        executable_(std::exchange(o.executable_, nullptr)),
        outputs_(o.outputs_),
        one_device_(o.one_device_) {}
  Executable& operator=(Executable&& o) noexcept;
  ~Executable();
  explicit operator bool() const { return executable_ != nullptr; }

  struct Call {
    PJRT_Buffer* const* arguments = nullptr;
    size_t argument_count = 0;
    const int64_t* non_donatable = nullptr;  // indices of donatable arguments that must survive this call
    size_t non_donatable_count = 0;
    int device = 0;                // ordinal; used unless the executable is bound to one device
    bool want_completion = false;  // ask for a device-complete event
    int64_t launch_id = 0;         // collectives: equal on all ranks, new and not 0 for every call
  };
  // Number of results of the program.
  size_t output_count() const { return outputs_; }
  // Submits; fills outputs[0..output_count) with buffers that the caller owns. Returns the completion event, empty
  // unless asked for. On failure no output is set.
  Result<Event> execute(const Call& call, PJRT_Buffer** outputs, size_t output_count) const;

  Result<std::string> serialize() const;
  Result<MemoryStats> memory_stats() const;
  // "flops", "bytes accessed", ...; empty where the plugin has none.
  Result<std::map<std::string, double>> cost_analysis() const;

 private:
  friend class Client;
  Executable(const Client* client, PJRT_LoadedExecutable* executable) : client_(client), executable_(executable) {}
  Status inspect();  // fills the two facts below

  const Client* client_ = nullptr;
  PJRT_LoadedExecutable* executable_ = nullptr;
  size_t outputs_ = 0;
  bool one_device_ = false;  // compiled for exactly one device, so Execute is not told where to run
};

struct ClientOptions {
  int device_count = 1;  // embedded engine: how many devices; ignored on a TPU
  int threads = 0;       // embedded engine: PJRT_NPROC; 0 leaves the engine's own choice
};

class Client {
 public:
  static Result<std::unique_ptr<Client>> create(const Plugin* plugin, const ClientOptions& options);
  ~Client();

  const Plugin& plugin() const { return *plugin_; }
  PlatformKind platform() const { return platform_; }
  const std::string& platform_name() const { return platform_name_; }
  const std::string& platform_version() const { return platform_version_; }
  int device_count() const { return static_cast<int>(devices_.size()); }
  // "TPU v6e", "cpu", ... as the plugin calls the device.
  const std::string& device_kind(int device) const { return kinds_[device]; }
  PJRT_Device* device(int i) const { return devices_[i]; }
  // The device's id in device assignments; unlike the ordinal it counts the devices of all processes.
  int global_id(int device) const { return ids_[device]; }
  // Capabilities probed once: buffers whose contents the host may read in place; executables that run on any device.
  bool host_readable() const { return host_readable_; }
  bool portable_executables() const { return portable_; }

  // Copies `data` (dense row-major, of this dtype and shape) before returning.
  Result<Buffer> from_host(const void* data, DType dtype, const Shape& shape, int device) const;
  // No copy where the engine allows it: `data` stays untouched and alive until `release` is called (exactly once,
  // also on failure, on any thread; never after abandon_all()). Falls back to a copy when misaligned (64 bytes) or
  // unsupported. Without a copy `release` comes when the buffer and every user of it are gone.
  Result<Buffer> adopt_host(const void* data, DType dtype, const Shape& shape, int device,
                            std::function<void()> release) const;

  Result<Executable> compile(const std::string& mlir, const CompileOptions& options) const;
  Result<Executable> deserialize(const std::string& blob) const;
  // {total, in use, peak} bytes as the plugin reports them; kUnavailable where it does not.
  struct DeviceMemory {
    int64_t limit = 0, in_use = 0, peak = 0;
  };
  Result<DeviceMemory> device_memory(int device) const;

  Status status(PJRT_Error* error) const { return plugin_->status(error); }

 private:
  Client() = default;
  Status open(const ClientOptions& options);
  Status describe();
  void probe();
  Status check_transfer(DType dtype, const Shape& shape, int device, const char* what) const;
  Result<Buffer> upload(const void* data, DType dtype, const Shape& shape, int device, int semantics,
                        Event* done) const;

  const Plugin* plugin_ = nullptr;
  PJRT_Client* client_ = nullptr;
  PlatformKind platform_ = PlatformKind::kCpu;
  std::string platform_name_, platform_version_;
  std::vector<PJRT_Device*> devices_;
  std::vector<std::string> kinds_;
  std::vector<int> ids_;
  bool host_readable_ = false, portable_ = false;
};

}  // namespace torch_tpu::pjrt
