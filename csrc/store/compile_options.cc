#include "store/compile_options.h"

#include <atomic>
#include <mutex>
#include <set>

#include "store/program_store.h"

namespace torch_tpu::store {
namespace {

struct Unknown {
  std::mutex mutex;
  std::set<std::pair<const pjrt::Plugin*, std::string>> options;
};

Unknown& unknown() {
  static Unknown* const instance = new Unknown;
  return *instance;
}

std::atomic<bool> excess_precision{false};

}  // namespace

bool allow_excess_precision() { return excess_precision.load(std::memory_order_relaxed); }
void set_allow_excess_precision(bool on) { excess_precision.store(on); }

pjrt::CompileOptions compile_options(const pjrt::Client& client, Profile profile, int device) {
  pjrt::CompileOptions options;
  options.portable = client.portable_executables();
  options.device = device;
  // Without the first XLA:CPU drops NaN in maximum and minimum; without the second it elides bf16 round trips.
  options.overrides = {{"xla_cpu_enable_fast_min_max", false},
                       {"xla_allow_excess_precision", allow_excess_precision()}};
  if (profile == Profile::kFast && client.platform() == pjrt::PlatformKind::kCpu) {
    options.overrides["xla_cpu_use_fusion_emitters"] = false;
    options.overrides["xla_backend_optimization_level"] = int64_t{0};
    options.overrides["xla_llvm_disable_expensive_passes"] = true;
  }
  Unknown& u = unknown();
  std::lock_guard lock(u.mutex);
  std::erase_if(options.overrides,
                [&](const auto& entry) { return u.options.contains({&client.plugin(), entry.first}); });
  return options;
}

pjrt::CompileOptions compile_options(const pjrt::Client& client, const Request& request) {
  pjrt::CompileOptions options = compile_options(client, request.profile, request.device);
  for (const auto& [name, value] : request.compile_options) options.overrides[name] = value;
  return options;
}

bool learn_unknown_option(const pjrt::Client& client, const Error& error) {
  constexpr std::string_view kText = "No such compile option: '";
  const size_t begin = error.message.find(kText);
  if (begin == std::string::npos) return false;
  const size_t name = begin + kText.size(), end = error.message.find('\'', name);
  if (end == std::string::npos) return false;
  Unknown& u = unknown();
  std::lock_guard lock(u.mutex);
  return u.options.emplace(&client.plugin(), error.message.substr(name, end - name)).second;
}

}  // namespace torch_tpu::store
