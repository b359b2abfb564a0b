#include "store/program_store.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "runtime/hooks.h"
#include "runtime/statistics.h"
#include "runtime/test_engine.h"
#include "store/compile_options.h"
#include "store/disk_key.h"
#include "store/disk_store.h"

namespace torch_tpu::store {
namespace {

namespace fs = std::filesystem;
using runtime::totals;
using runtime::testing::engine;

// The process's store looks at the environment once, so the folder is chosen before main. A child process that is to
// share a store is given its folder.
const std::string& store_folder() {
  static const std::string* const folder = [] {
    if (const char* given = std::getenv("TORCH_TPU_TEST_STORE")) return new std::string(given);
    std::string pattern = (fs::temp_directory_path() / "program_store_XXXXXX").string();
    return new std::string(mkdtemp(pattern.data()));
  }();
  return *folder;
}
const bool chosen = [] {
  unsetenv("TORCH_TPU_CACHE");
  unsetenv("TORCH_TPU_INTERNAL_TIER2_COMPILATION_CACHE");
  setenv("TORCH_TPU_CACHE_DIR", store_folder().c_str(), 1);
  return true;
}();

Request request_of(std::string text, Profile profile = Profile::kFast) {
  Request request;
  request.text = std::move(text);
  request.profile = profile;
  request.op = "aten::add.Tensor";
  request.detail = "(f32[4], f32[4])";
  request.why = "first call of this op";
  return request;
}

// A program that no other test asks for: the element count is its name.
Request request_of(int64_t count, Profile profile = Profile::kFast) {
  return request_of(runtime::testing::doubling(count), profile);
}

struct Counts {
  int64_t compiles = totals().compiles, disk_hits = totals().disk_hits, evictions = totals().evictions;
};

std::vector<float> run(const ProgramRef& program, const std::vector<float>& input) {
  runtime::testing::Submitted done = runtime::testing::submit(program->executable, runtime::testing::upload(input));
  EXPECT_TRUE(done.completion.wait().ok());
  std::vector<float> output(input.size());
  Result<pjrt::Event> copied = done.result->buffer.to_host(output.data(), output.size() * sizeof(float));
  EXPECT_TRUE(copied.ok() && copied.value().wait().ok());
  return output;
}

TEST(ProgramStore, CompilesOnceAndThenServesFromMemory) {
  const Counts before;
  const Result<ProgramRef> first = get(engine().client(), request_of(4));
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(get(engine().client(), request_of(4)).value(), first.value());
  EXPECT_EQ(totals().compiles - before.compiles, 1);
  EXPECT_EQ(totals().disk_hits - before.disk_hits, 0);
  EXPECT_EQ(run(first.value(), {1, 2, 3, 4}), (std::vector<float>{2, 4, 6, 8}));
  EXPECT_EQ(first.value()->key.size(), 64u);
  EXPECT_TRUE(fs::exists(store_folder() + "/" + first.value()->key + ".program"));
}

TEST(ProgramStore, ProfilesAreProgramsOfTheirOwn) {
  const ProgramRef fast = get(engine().client(), request_of(5, Profile::kFast)).value();
  const ProgramRef full = get(engine().client(), request_of(5, Profile::kFull)).value();
  EXPECT_NE(fast, full);
  EXPECT_NE(fast->key, full->key);
}

TEST(ProgramStore, KnowsWhatRunsInline) {
  const ProgramRef below = get(engine().client(), request_of(999)).value();
  const ProgramRef above = get(engine().client(), request_of(1000)).value();
  EXPECT_EQ(below->flops, 999);
  EXPECT_EQ(above->flops, 1000);
  EXPECT_TRUE(below->runs_inline);
  EXPECT_FALSE(above->runs_inline);
  // An inline program is complete when Execute returns.
  for (int i = 0; i < 200; ++i)
    ASSERT_TRUE(runtime::testing::submit(below->executable, runtime::testing::upload(std::vector<float>(999, 1.0F)))
                    .completion.ready());
}

TEST(ProgramStore, ThreadsWithOneTextShareOneCompile) {
  const Counts before;
  std::vector<std::thread> threads;
  std::vector<ProgramRef> programs(8);
  for (size_t t = 0; t < programs.size(); ++t)
    threads.emplace_back([&, t] { programs[t] = get(engine().client(), request_of(6)).value(); });
  for (auto& thread : threads) thread.join();
  for (const ProgramRef& program : programs) EXPECT_EQ(program, programs[0]);
  EXPECT_EQ(totals().compiles - before.compiles, 1);
}

TEST(ProgramStore, ErrorsComeBackAndAreNotRemembered) {
  const Counts before;
  for (int i = 0; i < 2; ++i) {
    const Result<ProgramRef> bad = get(engine().client(), request_of("module { nonsense }"));
    ASSERT_FALSE(bad.ok());
    EXPECT_FALSE(bad.error().message.empty());
  }
  EXPECT_EQ(totals().compiles, before.compiles);
  EXPECT_TRUE(get(engine().client(), request_of(7)).ok());
}

TEST(ProgramStore, TheLogTellsWhatWhereAndWhy) {
  runtime::hooks::set_call_site([] { return std::string("model.py:12"); });
  ASSERT_TRUE(get(engine().client(), request_of(8)).ok());
  runtime::hooks::set_call_site(nullptr);
  const CompileRecord last = compile_log().back();
  EXPECT_EQ(last.op, "aten::add.Tensor");
  EXPECT_EQ(last.detail, "(f32[4], f32[4])");
  EXPECT_EQ(last.why, "first call of this op");
  EXPECT_EQ(last.site, "model.py:12");
  EXPECT_FALSE(last.from_disk);
  EXPECT_GT(last.seconds, 0);
  EXPECT_EQ(last.text_bytes, static_cast<int64_t>(runtime::testing::doubling(8).size()));
  EXPECT_GT(last.when, 1.6e9);
}

TEST(ProgramStore, OptionsThePluginDoesNotKnowAreLeftOut) {
  const pjrt::Client& client = engine().client();
  EXPECT_FALSE(learn_unknown_option(client, {ErrorCode::kInvalidArgument, "some other error"}));
  EXPECT_EQ(compile_options(client, Profile::kFull, 0).overrides.size(), 2u);
  EXPECT_EQ(compile_options(client, Profile::kFast, 0).overrides.size(), 5u);
  const Result<pjrt::Executable> refused =
      client.compile(runtime::testing::doubling(4), {{{"no_such_flag", true}}, true, 0});
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(learn_unknown_option(client, refused.error())) << refused.error().message;
  EXPECT_FALSE(learn_unknown_option(client, refused.error())) << "known by now: no second try";
}

TEST(DiskKey, DependsOnEverythingThatDecides) {
  const pjrt::Client& client = engine().client();
  const std::string key = disk_key(client, "text", "options");
  EXPECT_EQ(disk_key(client, "text", "options"), key);
  EXPECT_NE(disk_key(client, "texts", "options"), key);
  EXPECT_NE(disk_key(client, "text", "option"), key);
  EXPECT_NE(disk_key(client, "stext", "option"), key);
  const char* before = std::getenv("XLA_FLAGS");
  const std::string saved = before ? before : "";
  setenv("XLA_FLAGS", "--xla_something=1", 1);
  EXPECT_NE(disk_key(client, "text", "options"), key);
  if (before)
    setenv("XLA_FLAGS", saved.c_str(), 1);
  else
    unsetenv("XLA_FLAGS");
  setenv("LIBTPU_INIT_ARGS", "--x", 1);
  EXPECT_NE(disk_key(client, "text", "options"), key);
  unsetenv("LIBTPU_INIT_ARGS");
}

TEST(DiskKey, ReadsTheInstructionSets) {
  const std::string path = store_folder() + "/cpuinfo";
  std::ofstream(path)
      << "processor : 0\nmodel name : A\ncpu MHz : 123.4\nflags : sse avx\n\nprocessor : 1\nflags : sse\n\n";
  EXPECT_EQ(cpu_features(path), "model name : A\nflags : sse avx\n");
  EXPECT_EQ(cpu_features(path + ".absent"), "");
  EXPECT_NE(cpu_features(), "");
}

// --- across processes ------------------------------------------------------------------------------------------------

// What a fresh process does instead of running tests.
void ask_and_report(int64_t count) {
  const Result<ProgramRef> program = get(engine().client(), request_of(count, Profile::kFull));
  ASSERT_TRUE(program.ok()) << program.error().message;
  const std::vector<float> input(static_cast<size_t>(count), 1.5F);
  EXPECT_EQ(run(program.value(), input), std::vector<float>(static_cast<size_t>(count), 3.0F));
  std::printf("compiles=%lld disk_hits=%lld flops=%lld inline=%d from_disk=%d\n",
              static_cast<long long>(totals().compiles), static_cast<long long>(totals().disk_hits),
              static_cast<long long>(program.value()->flops), program.value()->runs_inline,
              compile_log().back().from_disk);
}

class Process : public testing::Environment {
  void SetUp() override {
    const char* count = std::getenv("TORCH_TPU_TEST_COUNT");
    if (!count) return;
    ask_and_report(std::atoll(count));
    std::fflush(stdout);
    _exit(HasFailure());
  }
  void TearDown() override { fs::remove_all(store_folder()); }
  static bool HasFailure() { return testing::UnitTest::GetInstance()->Failed(); }
};
[[maybe_unused]] testing::Environment* const process = testing::AddGlobalTestEnvironment(new Process);

// Asks for the program of `count` elements in a fresh process that shares our store; returns what it printed.
std::string ask_in_new_process(int64_t count, const std::string& settings = "") {
  const std::string command = settings + " TORCH_TPU_TEST_COUNT=" + std::to_string(count) + " TORCH_TPU_TEST_STORE='" +
                              store_folder() + "' '" + fs::read_symlink("/proc/self/exe").string() + "' 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  char chunk[4096];
  while (const size_t n = fread(chunk, 1, sizeof chunk, pipe)) output.append(chunk, n);
  EXPECT_EQ(pclose(pipe), 0) << output;
  return output;
}

int64_t reported(const std::string& output, const std::string& name) {
  const size_t at = output.find(name + "=");
  return at == std::string::npos ? -1 : std::atoll(output.c_str() + at + name.size() + 1);
}

TEST(ProgramStoreProcesses, ASecondProcessLoadsFromDisk) {
  const std::string first = ask_in_new_process(50);
  EXPECT_EQ(reported(first, "compiles"), 1) << first;
  const std::string second = ask_in_new_process(50);
  EXPECT_EQ(reported(second, "compiles"), 0) << second;
  EXPECT_EQ(reported(second, "disk_hits"), 1);
  EXPECT_EQ(reported(second, "flops"), 50) << "facts come with the file";
  EXPECT_EQ(reported(second, "inline"), 1);
  EXPECT_EQ(reported(second, "from_disk"), 1);
}

TEST(ProgramStoreProcesses, TwoProcessesAtOnceCompileOnce) {
  std::string outputs[2];
  std::thread other([&] { outputs[0] = ask_in_new_process(51); });
  outputs[1] = ask_in_new_process(51);
  other.join();
  EXPECT_EQ(reported(outputs[0], "compiles") + reported(outputs[1], "compiles"), 1) << outputs[0] << outputs[1];
  EXPECT_EQ(reported(outputs[0], "disk_hits") + reported(outputs[1], "disk_hits"), 1);
}

TEST(ProgramStoreProcesses, OtherFlagsAreAMiss) {
  EXPECT_EQ(reported(ask_in_new_process(52), "compiles"), 1);
  EXPECT_EQ(reported(ask_in_new_process(52, "XLA_FLAGS=--xla_cpu_enable_fast_math=false"), "compiles"), 1);
  EXPECT_EQ(reported(ask_in_new_process(52), "compiles"), 0);
}

TEST(ProgramStoreProcesses, DamagedFilesAndBlobsThePluginRefusesAreMisses) {
  const ProgramRef program = get(engine().client(), request_of(53, Profile::kFull)).value();
  const std::string path = store_folder() + "/" + program->key + ".program";
  const auto size = fs::file_size(path);
  EXPECT_EQ(reported(ask_in_new_process(53), "compiles"), 0);

  fs::resize_file(path, size - 1);
  EXPECT_EQ(reported(ask_in_new_process(53), "compiles"), 1) << "truncated";
  EXPECT_EQ(fs::file_size(path), size) << "and written again";

  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(size) - 100);
  file.put('\x55');
  file.close();
  EXPECT_EQ(reported(ask_in_new_process(53), "compiles"), 1) << "one byte changed";

  // Whole and with the right checksum, but nothing the plugin can read.
  ASSERT_TRUE(disk_store().save(program->key, {{}, "not an executable"}));
  EXPECT_EQ(reported(ask_in_new_process(53), "compiles"), 1);
  EXPECT_EQ(reported(ask_in_new_process(53), "compiles"), 0);
}

TEST(ProgramStoreProcesses, WithoutADiskStoreProgramsAreCompiled) {
  EXPECT_EQ(reported(ask_in_new_process(54), "compiles"), 1);
  EXPECT_EQ(get(engine().client(), request_of(54, Profile::kFull)).value()->flops, 54);
  ASSERT_TRUE(fs::exists(store_folder()));
  const auto permissions = fs::status(store_folder()).permissions();
  fs::permissions(store_folder(), fs::perms::all);
  const std::string output = ask_in_new_process(54);
  fs::permissions(store_folder(), permissions);
  EXPECT_EQ(reported(output, "compiles"), 1);
  EXPECT_NE(output.find("writable by others"), std::string::npos) << "one line says why: " << output;
}

TEST(ProgramStoreProcesses, TheStoreIsListed) {
  const ProgramRef program = get(engine().client(), request_of(55)).value();
  EXPECT_EQ(directory(), store_folder());
  bool found = false;
  for (const DiskEntry& entry : disk_entries())
    found = found || (entry.key == program->key && entry.op == "aten::add.Tensor");
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace torch_tpu::store
