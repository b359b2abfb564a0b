#include "store/program_store.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>

#include "base/env.h"
#include "runtime/hooks.h"
#include "runtime/memory.h"
#include "runtime/statistics.h"
#include "store/background.h"
#include "store/compile_log.h"
#include "store/compile_options.h"
#include "store/disk_key.h"
#include "store/disk_store.h"
#include "store/memory_store.h"
#include "store/single_flight.h"

namespace torch_tpu::store {
namespace {

// How long to wait for another process that compiles the same program; then compile it here as well.
constexpr double kLockSeconds = 120;
// XLA:CPU runs a program inside Execute when it estimates fewer operations than this (measured, exact).
constexpr double kInlineFlops = 1000;
// Measured on the embedded engine (relu, sum, threshold_backward of 16,384 floats): what a run of a program in the fast
// profile loses per element. A compile in full takes 30 ms and, being beside the ops, costs them about a third of that.
constexpr double kSecondsLostPerElement = 0.7e-9, kFullCompileSeconds = 0.01;

struct Store {
  MemoryStore memory;
  SingleFlight<MemoryKey, Result<ProgramRef>> flights;

  explicit Store(size_t kept) : memory(kept) {}
};

Store& process_store() {
  static Store* const instance = [] {
    const Result<int64_t> kept = env::integer("TORCH_TPU_PROGRAM_CACHE_ENTRIES", 1, int64_t{1} << 30);
    auto* made = new Store(kept.ok() ? static_cast<size_t>(kept.value()) : 4096);
    return made;
  }();
  return *instance;
}

// Executables occupy device memory on a TPU only; on the embedded engine dropping them would free nothing we count.
void register_reclaimer(const pjrt::Client& client) {
  static const bool registered = [&] {
    if (client.platform() != pjrt::PlatformKind::kTpu) return false;
    runtime::add_reclaimer([] { runtime::totals().evictions.fetch_add(process_store().memory.drop_unused()); });
    return true;
  }();
  (void)registered;
}

template <typename Number>
Number number_of(const Facts& facts, const char* name, Number fallback) {
  auto it = facts.find(name);
  if (it == facts.end()) return fallback;
  Number value = fallback;
  std::from_chars(it->second.data(), it->second.data() + it->second.size(), value);
  return value;
}

std::string text_of(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

void set_runs_inline(const pjrt::Client& client, Program& program) {
  // Only where the estimate is known: a wrong "inline" would let synchronize() return early.
  program.runs_inline =
      client.platform() == pjrt::PlatformKind::kCpu && program.flops >= 0 && program.flops < kInlineFlops;
}

// One program's way from a request to an executable, on the thread that leads its flight.
class Builder {
 public:
  Builder(const pjrt::Client& client, const Request& request, std::string site)
      : client_(client), request_(request), site_(std::move(site)) {}

  Result<ProgramRef> build() {
    // An earlier process may have found the program hot.
    if (request_.profile == Profile::kFast && !request_.background)
      if (ProgramRef program = full_from_disk()) return program;
    while (true) {
      const pjrt::CompileOptions options = compile_options(client_, request_);
      Result<std::shared_ptr<Program>> program = build_with(options);
      if (program.ok()) {
        watch(*program.value());
        return ProgramRef(program.take());
      }
      for (const auto& [name, value] : request_.compile_options)
        if (program.error().message.find("'" + name + "'") != std::string::npos)
          return Error{ErrorCode::kValue, "compile option '" + name + "': " + program.error().message};
      if (!learn_unknown_option(client_, program.error())) return program.error();
    }
  }

 private:
  // See note [Hot programs].
  void watch(Program& program) const {
    if (request_.profile != Profile::kFast || client_.platform() != pjrt::PlatformKind::kCpu) return;
    const double seconds_lost = kSecondsLostPerElement * static_cast<double>(std::max<int64_t>(request_.elements, 1));
    program.upgrade = std::make_unique<Upgrade>(Upgrade{&client_, request_, nullptr});
    const auto runs = static_cast<int64_t>(kFullCompileSeconds / seconds_lost) + 1;
    Request& full = program.upgrade->request;
    full.profile = Profile::kFull;
    full.background = true;
    full.why = "ran " + std::to_string(runs) + " times: compiled again in full, in the background";
    program.runs_left.store(runs);
  }

  ProgramRef full_from_disk() {
    if (!disk_store().on()) return nullptr;
    set_key(compile_options(client_, Profile::kFull, request_.device));
    return from_disk(disk_store());
  }

  void set_key(const pjrt::CompileOptions& options) {
    key_ =
        disk_key(client_, request_.text, options.encode() + (options.portable ? "" : std::to_string(options.device)));
  }

  Result<std::shared_ptr<Program>> build_with(const pjrt::CompileOptions& options) {
    DiskStore& disk = disk_store();
    // Without a disk store nobody needs the key, and hashing the plugin's library is not free.
    if (!disk.on()) return compile(options);
    set_key(options);
    if (auto program = from_disk(disk)) return program;
    const KeyLock lock = disk.lock(key_, kLockSeconds);
    if (lock)
      if (auto program = from_disk(disk)) return program;  // another process was faster
    return compile(options);
  }

  std::shared_ptr<Program> from_disk(DiskStore& disk) {
    const auto begin = std::chrono::steady_clock::now();
    std::optional<StoredProgram> stored = disk.load(key_);
    if (!stored) return nullptr;
    Result<pjrt::Executable> executable = client_.deserialize(stored->blob);
    if (!executable.ok()) {
      disk.remove(key_);
      return nullptr;
    }
    auto program = std::make_shared<Program>();
    program->executable = executable.take();
    program->temporary_bytes = number_of<int64_t>(stored->facts, "temporary_bytes", 0);
    program->flops = number_of<double>(stored->facts, "flops", -1);
    program->key = key_;
    set_runs_inline(client_, *program);
    runtime::totals().disk_hits.fetch_add(1, std::memory_order_relaxed);
    record(begin, /*from_disk=*/true);
    return program;
  }

  Result<std::shared_ptr<Program>> compile(const pjrt::CompileOptions& options) {
    if (request_.cached_only) return Error{ErrorCode::kUnavailable, request_.op + ": is in no store"};
    const auto begin = std::chrono::steady_clock::now();
    std::optional<background::ForegroundCompile> waited_for;
    if (!request_.background) waited_for.emplace();
    Result<pjrt::Executable> executable = client_.compile(request_.text, options);
    if (!executable.ok()) return executable.error();
    auto program = std::make_shared<Program>();
    program->executable = executable.take();
    if (Result<pjrt::MemoryStats> stats = program->executable.memory_stats(); stats.ok())
      program->temporary_bytes = stats.value().temporaries;
    if (auto costs = program->executable.cost_analysis(); costs.ok())
      if (auto it = costs.value().find("flops"); it != costs.value().end()) program->flops = it->second;
    program->key = key_;
    set_runs_inline(client_, *program);
    auto& count = request_.background ? runtime::totals().background_compiles : runtime::totals().compiles;
    count.fetch_add(1, std::memory_order_relaxed);
    record(begin, /*from_disk=*/false);
    store(*program);
    return program;
  }

  void store(const Program& program) {
    if (!disk_store().on()) return;
    Result<std::string> blob = program.executable.serialize();
    if (!blob.ok()) return;  // a plugin that cannot serialise: every process compiles
    StoredProgram stored;
    stored.facts = {{"op", request_.op},
                    {"detail", request_.detail},
                    {"flops", text_of(program.flops)},
                    {"temporary_bytes", std::to_string(program.temporary_bytes)}};
    stored.blob = blob.take();
    (void)disk_store().save(key_, stored);
  }

  void record(std::chrono::steady_clock::time_point begin, bool from_disk) {
    CompileRecord entry;
    entry.op = request_.op;
    entry.detail = request_.detail;
    entry.why = request_.why;
    entry.site = site_;
    entry.key = key_;
    entry.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    entry.from_disk = from_disk;
    entry.background = request_.background;
    entry.text_bytes = static_cast<int64_t>(request_.text.size());
    entry.when = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    append_to_log(std::move(entry));
  }

  const pjrt::Client& client_;
  const Request& request_;
  const std::string site_;
  std::string key_;
};

}  // namespace

Result<ProgramRef> get(const pjrt::Client& client, const Request& request) {
  if (pjrt::abandoned()) return Error{ErrorCode::kUnavailable, request.op + ": the engine is gone"};
  Store& s = process_store();
  register_reclaimer(client);
  const pjrt::CompileOptions options = compile_options(client, request);
  const MemoryKey key =
      memory_key(request.text, options.encode() + (options.portable ? "" : std::to_string(options.device)));
  if (ProgramRef program = s.memory.find(key)) return program;
  // Asked here because the hook takes the GIL, which a thread waiting for this flight may hold.
  std::string site = request.background ? "" : runtime::hooks::call_site();
  return s.flights.run(key, [&]() -> Result<ProgramRef> {
    // A flight of this key may have landed between the lookup above and this one's start.
    if (ProgramRef program = s.memory.find(key)) return program;
    Result<ProgramRef> program = Builder(client, request, std::move(site)).build();
    if (program.ok())
      runtime::totals().evictions.fetch_add(s.memory.insert(key, program.value()), std::memory_order_relaxed);
    return program;
  });
}

const Program& promote(const ProgramRef& program) {
  background::enqueue([program] {
    Result<ProgramRef> better = get(*program->upgrade->client, program->upgrade->request);
    if (!better.ok()) return;  // the fast one goes on
    program->upgrade->program = better.take();
    program->better.store(program->upgrade->program.get(), std::memory_order_release);
  });
  return *program;
}

}  // namespace torch_tpu::store
