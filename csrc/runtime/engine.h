// The process's engine: which plugin, the client, its devices. Opened lazily by the first device use.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "pjrt/client.h"

namespace torch_tpu::runtime {

class Engine {
 public:
  // Paths the Python package found, "" if not installed. Called once at import; opens nothing.
  static void configure(std::string libtpu, std::string embedded);
  // True if a device could be used: a plugin can be chosen. Never throws, opens nothing. False in a bad fork.
  static bool available();
  // Number of devices without opening the engine where that is possible: TORCH_TPU_NUM_DEVICES on the embedded engine,
  // accel / vfio nodes on a TPU. 0 if unavailable.
  static int device_count();
  // The engine, opened on first use. kUnavailable with one sentence naming the pip command; in a forked child of a
  // process that had opened it: "Cannot re-initialize TPU in forked subprocess. ...".
  static Result<Engine*> get();
  static bool opened();
  // True in a forked child of a process that had opened the engine.
  static bool in_bad_fork();
  // Waits for outstanding work, then makes every handle inert. Registered with atexit by the Python package.
  static void shutdown();
  // What shutdown() does first: ends threads that use the engine. Not run in a bad fork.
  static void before_shutdown(std::function<void()> step);

  const pjrt::Client& client() const { return *client_; }
  // "xla-cpu" or "libtpu": get_device_properties(i).engine.
  std::string name() const;
  // "TPU v6e" or "TPU (embedded XLA:CPU)".
  std::string device_name(int device) const;

 private:
  explicit Engine(std::unique_ptr<pjrt::Client> client) : client_(std::move(client)) {}
  std::unique_ptr<pjrt::Client> client_;
};

}  // namespace torch_tpu::runtime
