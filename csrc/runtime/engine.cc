#include "runtime/engine.h"

#include <dirent.h>
#include <pthread.h>

#include <atomic>
#include <cctype>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "runtime/address_space.h"
#include "runtime/memory.h"
#include "runtime/stream.h"

namespace torch_tpu::runtime {
namespace {

struct State {
  std::mutex mutex;  // guards the paths and the opening
  std::string libtpu, embedded;
  std::atomic<Engine*> engine{nullptr};  // never deleted
  std::atomic<Engine*> usable{nullptr};  // the same until a bad fork or shutdown()
  std::atomic<bool> opening{false};
  std::atomic<bool> bad_fork{false};
  std::atomic<bool> shut_down{false};
  std::mutex steps_mutex;
  std::vector<std::function<void()>> shutdown_steps;  // guarded by steps_mutex
};

State& state() {
  static State* const instance = new State;
  return *instance;
}

// Note [Fork]
// A child of a process that had opened the engine has the handles but none of the engine's threads: nothing that talks
// to the plugin may run there, and no lock may be taken, because a thread that does not exist in the child may hold it.
// `abandon_all()` makes every handle inert and every function of this room look at `pjrt::abandoned()` before a lock.
// A child of a process that had not opened it may open its own, so there the locks are taken around the fork instead.
thread_local bool locked_for_fork = false;

void before_fork() {
  State& s = state();
  if (s.engine.load() || s.opening.load()) return;
  s.mutex.lock();
  address_space::lock_all();
  locked_for_fork = true;
}

void unlock_after_fork() {
  if (!locked_for_fork) return;
  locked_for_fork = false;
  address_space::unlock_all();
  state().mutex.unlock();
}

void in_child() {
  State& s = state();
  if (s.engine.load() || s.opening.load()) {
    s.bad_fork.store(true);
    s.usable.store(nullptr);
    pjrt::abandon_all();
  }
  unlock_after_fork();
}

void install_fork_handlers() {
  static const int installed = pthread_atfork(before_fork, unlock_after_fork, in_child);
  (void)installed;
}

constexpr const char* kBadFork =
    "Cannot re-initialize TPU in forked subprocess. To use TPU with multiprocessing, you must use the 'spawn' start "
    "method";

Result<pjrt::PluginChoice> choose(State& s) {
  std::string libtpu, embedded;
  {
    std::lock_guard lock(s.mutex);
    libtpu = s.libtpu;
    embedded = s.embedded;
  }
  return pjrt::choose_plugin(libtpu, embedded);
}

// Chips this process may address, counted by their device nodes: /dev/accel0... or /dev/vfio/0... .
int count_nodes(const char* folder, const std::string& prefix) {
  DIR* dir = opendir(folder);
  if (!dir) return 0;
  int count = 0;
  while (const dirent* entry = readdir(dir)) {
    const std::string name = entry->d_name;
    if (name.size() <= prefix.size() || name.compare(0, prefix.size(), prefix) != 0) continue;
    bool digits = true;
    for (size_t i = prefix.size(); i < name.size(); ++i)
      digits = digits && std::isdigit(static_cast<unsigned char>(name[i]));
    count += digits;
  }
  closedir(dir);
  return count;
}

bool drives_tpu(const pjrt::PluginChoice& choice) { return choice.path.find("libtpu") != std::string::npos; }

// Every variable with a checkable type is read once here, so that a bad value is one error at the first device use and
// not a silent default wherever it is needed later.
Status check_environment() {
  for (const env::Variable& variable : env::variables()) {
    const std::string_view type = variable.type;
    std::optional<Error> error;
    if (type == "flag") {
      if (const auto value = env::flag(variable.name); !value.ok()) error = value.error();
    } else if (type == "bytes") {
      if (const auto value = env::bytes(variable.name); !value.ok()) error = value.error();
    } else if (type == "int") {
      if (const auto value = env::integer(variable.name, 0, INT64_MAX); !value.ok()) error = value.error();
    } else if (type.starts_with("one of ")) {
      if (const auto value = env::one_of(variable.name); !value.ok()) error = value.error();
    }
    if (error) return *error;
  }
  return {};
}

Result<pjrt::ClientOptions> client_options() {
  Result<int64_t> devices = env::integer("TORCH_TPU_NUM_DEVICES", 1, kMaxDevices);
  if (!devices.ok()) return devices.error();
  Result<int64_t> threads = env::integer("TORCH_TPU_THREADS", 0, 4096);
  if (!threads.ok()) return threads.error();
  if (Status status = check_environment(); !status.ok()) return status.error();
  pjrt::ClientOptions options;
  options.device_count = static_cast<int>(devices.value());
  options.threads = static_cast<int>(threads.value());
  return options;
}

}  // namespace

void Engine::configure(std::string libtpu, std::string embedded) {
  install_fork_handlers();
  State& s = state();
  std::lock_guard lock(s.mutex);
  s.libtpu = std::move(libtpu);
  s.embedded = std::move(embedded);
}

bool Engine::in_bad_fork() { return state().bad_fork.load(std::memory_order_relaxed); }

bool Engine::opened() { return state().engine.load(std::memory_order_acquire) != nullptr; }

bool Engine::available() {
  State& s = state();
  if (in_bad_fork()) return false;
  return s.engine.load() || choose(s).ok();
}

int Engine::device_count() {
  State& s = state();
  if (in_bad_fork()) return 0;
  if (const Engine* engine = s.engine.load(std::memory_order_acquire)) return engine->client().device_count();
  Result<pjrt::PluginChoice> choice = choose(s);
  if (!choice.ok()) return 0;
  if (drives_tpu(choice.value())) {
    const int accel = count_nodes("/dev", "accel");
    return accel > 0 ? accel : count_nodes("/dev/vfio", "");
  }
  Result<int64_t> devices = env::integer("TORCH_TPU_NUM_DEVICES", 1, kMaxDevices);
  return devices.ok() ? static_cast<int>(devices.value()) : 1;  // the value's error is raised by get()
}

Result<Engine*> Engine::get() {
  State& s = state();
  if (Engine* engine = s.usable.load(std::memory_order_acquire)) return engine;
  if (in_bad_fork()) return Error{ErrorCode::kUnavailable, kBadFork};
  if (s.shut_down.load())
    return Error{ErrorCode::kUnavailable, "tpu: the engine is shut down, the interpreter is exiting"};
  install_fork_handlers();
  Result<pjrt::PluginChoice> choice = choose(s);
  if (!choice.ok()) return choice.error();
  Result<pjrt::ClientOptions> options = client_options();
  if (!options.ok()) return options.error();

  std::lock_guard lock(s.mutex);
  if (Engine* engine = s.usable.load(std::memory_order_acquire)) return engine;
  // From here on a fork leaves the child with half of an engine.
  s.opening.store(true);
  Result<std::unique_ptr<pjrt::Client>> client = [&]() -> Result<std::unique_ptr<pjrt::Client>> {
    Result<const pjrt::Plugin*> plugin = pjrt::Plugin::load(choice.value());
    if (!plugin.ok()) return plugin.error();
    return pjrt::Client::create(plugin.value(), options.value());
  }();
  if (!client.ok()) {
    s.opening.store(false);
    return client.error();
  }
  auto* engine = new Engine(client.take());
  if (engine->client().device_count() > kMaxDevices) {
    Error error{ErrorCode::kUnavailable, "tpu: the engine has " + std::to_string(engine->client().device_count()) +
                                             " devices, expected at most " + std::to_string(kMaxDevices)};
    delete engine;
    s.opening.store(false);
    return error;
  }
  for (int i = 0; i < engine->client().device_count(); ++i)
    if (auto memory = engine->client().device_memory(i); memory.ok() && memory.value().limit > 0)
      set_plugin_memory_limit(i, memory.value().limit);
  s.engine.store(engine, std::memory_order_release);
  s.usable.store(engine, std::memory_order_release);
  s.opening.store(false);
  return engine;
}

void Engine::shutdown() {
  State& s = state();
  if (s.shut_down.exchange(true) || in_bad_fork()) return;
  const Engine* engine = s.engine.load(std::memory_order_acquire);
  if (!engine) return;
  std::vector<std::function<void()>> steps;
  {
    std::lock_guard lock(s.steps_mutex);
    steps.swap(s.shutdown_steps);
  }
  for (const auto& step : steps) step();
  // Daemon threads may go on submitting: an engine thread that runs while the process unmaps the plugin crashes it.
  pjrt::stop_submissions();
  // Errors have nobody left to read them. The client is leaked: its threads may still be returning from callbacks.
  for (int i = 0; i < engine->client().device_count(); ++i) (void)wait_for_submissions(i);
  s.usable.store(nullptr);
  pjrt::abandon_all();
}

void Engine::before_shutdown(std::function<void()> step) {
  State& s = state();
  std::lock_guard lock(s.steps_mutex);
  s.shutdown_steps.push_back(std::move(step));
}

std::string Engine::name() const {
  const pjrt::Plugin& plugin = client_->plugin();
  if (plugin.source() == "libtpu") return "libtpu";
  if (plugin.source() == "xla-cpu-pjrt") return "xla-cpu";
  return plugin.path().substr(plugin.path().rfind('/') + 1);
}

std::string Engine::device_name(int device) const {
  return client_->platform() == pjrt::PlatformKind::kTpu ? client_->device_kind(device) : "TPU (embedded XLA:CPU)";
}

}  // namespace torch_tpu::runtime
