#include "runtime/engine.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "runtime/late_error.h"
#include "runtime/memory.h"
#include "runtime/statistics.h"
#include "runtime/stream.h"
#include "runtime/test_engine.h"

namespace torch_tpu::runtime {
namespace {

// Whether the engine is open, and how often it was forked, is the process's own history: each of these tests runs in a
// fresh process (the "threadsafe" style starts the test binary again) and exits with 0 when everything held.
class EngineProcessTest : public ::testing::Test {
 protected:
  EngineProcessTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

#define HOLDS(condition)                                                          \
  do {                                                                            \
    if (!(condition)) {                                                           \
      std::fprintf(stderr, "line %d: does not hold: %s\n", __LINE__, #condition); \
      _exit(1);                                                                   \
    }                                                                             \
  } while (false)

// Waits at most ten seconds for a child; false if it hangs or fails.
bool exits_well(pid_t child) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      std::fprintf(stderr, "child %d hangs\n", child);
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// With static destructors, as an interpreter exits. What an abandoned engine's handles held is leaked on purpose, which
// the leak checker, one of those destructors, would report.
[[noreturn]] void exit_like_an_interpreter() {
#if defined(__SANITIZE_ADDRESS__)
  _exit(0);
#else
  exit(0);
#endif
}

TEST(Engine, IsOpenedOnceAndNamesItself) {
  Engine& engine = testing::engine();
  EXPECT_EQ(Engine::get().value(), &engine);
  EXPECT_TRUE(Engine::opened());
  EXPECT_TRUE(Engine::available());
  EXPECT_FALSE(Engine::in_bad_fork());
  EXPECT_EQ(Engine::device_count(), 2);
  EXPECT_EQ(engine.name(), "xla-cpu");
  EXPECT_EQ(engine.device_name(1), "TPU (embedded XLA:CPU)");
}

TEST_F(EngineProcessTest, LookingOpensNothing) {
  EXPECT_EXIT(
      {
        setenv("TORCH_TPU_NUM_DEVICES", "3", 1);
        Engine::configure("", TORCH_TPU_EMBEDDED_PLUGIN);
        HOLDS(Engine::available());
        HOLDS(Engine::device_count() == 3);
        HOLDS(!Engine::opened());
        Engine::shutdown();  // nothing to do
        _exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(EngineProcessTest, WithoutAPluginThereIsOneSentence) {
  EXPECT_EXIT(
      {
        unsetenv("TORCH_TPU_PJRT_PLUGIN");
        Engine::configure("", "");
        HOLDS(!Engine::available());
        HOLDS(Engine::device_count() == 0);
        const Result<Engine*> engine = Engine::get();
        HOLDS(!engine.ok() && engine.error().code == ErrorCode::kUnavailable);
        HOLDS(engine.error().message.find("pip install") != std::string::npos);
        // Installed later in the same process: it is looked for again.
        Engine::configure("", TORCH_TPU_EMBEDDED_PLUGIN);
        HOLDS(Engine::get().ok());
        _exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(EngineProcessTest, ABadEnvironmentValueIsOneErrorAndCanBeMended) {
  EXPECT_EXIT(
      {
        Engine::configure("", TORCH_TPU_EMBEDDED_PLUGIN);
        for (const char* name : {"TORCH_TPU_NUM_DEVICES", "TORCH_TPU_MEMORY_LIMIT", "TORCH_TPU_CACHE"}) {
          setenv(name, "many", 1);
          const Result<Engine*> engine = Engine::get();
          HOLDS(!engine.ok() && engine.error().code == ErrorCode::kValue);
          HOLDS(engine.error().message.find(name) != std::string::npos);
          HOLDS(engine.error().message.find("<many>") != std::string::npos);
          unsetenv(name);
        }
        HOLDS(Engine::get().ok());
        _exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(EngineProcessTest, TheMemoryLimitComesFromTheEnvironment) {
  EXPECT_EXIT(
      {
        setenv("TORCH_TPU_MEMORY_LIMIT", "1MiB", 1);
        Engine::configure("", TORCH_TPU_EMBEDDED_PLUGIN);
        HOLDS(memory_limit(0) == 1 << 20);
        ValueRef value = testing::upload(std::vector<float>(200'000, 1.0F));
        HOLDS(counters(0).allocated == 800'000);
        HOLDS(admit(0, 200'000, "aten::add.Tensor").ok());
        const Status refused = admit(0, 800'000, "aten::add.Tensor");
        HOLDS(!refused.ok() && refused.error().code == ErrorCode::kOutOfMemory);
        HOLDS(refused.error().message.find("1 x 781.25 KiB f32[200000]") != std::string::npos);
        value = {};
        HOLDS(admit(0, 800'000, "aten::add.Tensor").ok());
        _exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(EngineProcessTest, AChildOfAnUnopenedEngineOpensItsOwn) {
  EXPECT_EXIT(
      {
        Engine::configure("", TORCH_TPU_EMBEDDED_PLUGIN);
        Slot early(0, 100);
        const pid_t child = fork();
        if (child == 0) {
          HOLDS(!Engine::in_bad_fork() && Engine::available());
          HOLDS(slot_at(early.address()) == &early);
          Slot late(0, 100);
          HOLDS(slot_at(late.address()) == &late);
          HOLDS(Engine::get().ok());
          testing::Submitted done =
              testing::submit(testing::compile(testing::doubling(4)), testing::upload({1, 2, 3, 4}));
          HOLDS(done.completion.wait().ok());
          _exit(0);
        }
        HOLDS(Engine::get().ok());
        HOLDS(exits_well(child));
        _exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

// What a garbage collector does in the child: drop handles of the parent, touch every function of this room.
void use_in_bad_fork(std::unique_ptr<Slot> slot, ValueRef value, EventRecord event) {
  HOLDS(Engine::in_bad_fork() && !Engine::available() && Engine::device_count() == 0);
  const Result<Engine*> engine = Engine::get();
  HOLDS(!engine.ok() && engine.error().code == ErrorCode::kUnavailable);
  HOLDS(engine.error().message.starts_with(
      "Cannot re-initialize TPU in forked subprocess. To use TPU with multiprocessing"));
  HOLDS(synchronize({0, 0}).ok() && synchronize_device(1).ok() && query({0, 0}));
  HOLDS(event.query() && event.synchronize().ok());
  event.record({0, 0}, true);
  HOLDS(check_flags(0, true).ok());
  watch_flag(value, "aten::index.Tensor", "");
  run_reclaimers();
  count_fallback("aten::svd");
  Slot late(0, 1000);
  HOLDS(late.address() != nullptr);
  for_each_slot([](Slot&) {});
  slot.reset();
  value = {};
  Engine::shutdown();
}

TEST_F(EngineProcessTest, ForksUnderLoadFinish) {
  EXPECT_EXIT(
      {
        testing::engine();
        const pjrt::Executable program = testing::compile(testing::doubling(4096));
        ValueRef x = testing::upload(std::vector<float>(4096, 1.0F));
        std::atomic<bool> stop{false};
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; ++t)
          threads.emplace_back([&, t] {
            while (!stop) {
              Slot slot(0, 1 << (t + 6));
              testing::Submitted submitted = testing::submit(program, x);
              leave_token(0, std::move(submitted.completion));
              slot.value = std::move(submitted.result);
              watch_flag(x, "aten::index.Tensor", "");
              count_fallback("aten::svd");
              if (t == 3) (void)synchronize_device(0);
            }
          });
        EventRecord event;
        for (int i = 0; i < 50; ++i) {
          auto slot = std::make_unique<Slot>(0, 1000);
          slot->value = testing::upload({1, 2, 3});
          event.record({0, 0}, true);
          const pid_t child = fork();
          if (child == 0) {
            use_in_bad_fork(std::move(slot), x, event);
            exit_like_an_interpreter();
          }
          HOLDS(exits_well(child));
        }
        stop = true;
        for (auto& thread : threads) thread.join();
        HOLDS(Engine::get().ok() && !Engine::in_bad_fork());
        _exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(EngineProcessTest, ShutdownWaitsAndMakesHandlesInert) {
  EXPECT_EXIT(
      {
        testing::engine();
        const pjrt::Executable program = testing::compile(testing::slow(1'000'000, 800));
        auto* submitted =
            new testing::Submitted(testing::submit(program, testing::upload(std::vector<float>(1'000'000, 1.0F))));
        std::atomic<bool> finished{false};
        submitted->completion.on_ready([&](Status) { finished = true; });
        leave_token(0, std::move(submitted->completion));
        Engine::shutdown();
        // The engine runs waiters and callbacks of one event in no fixed order. The program takes several times this
        // grace.
        for (int i = 0; i < 100 && !finished; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        HOLDS(finished);
        HOLDS(!Engine::get().ok());
        delete submitted;
        Engine::shutdown();
        exit_like_an_interpreter();
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace torch_tpu::runtime
