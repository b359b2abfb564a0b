// The test plugin behaves as its README says, seen through pjrt/.
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "mode.h"
#include "pjrt/test_engine.h"

namespace torch_tpu::pjrt {
namespace {

constexpr int kResourceExhausted = 8, kInternal = 13;
const std::string kType = "tensor<4xf32>";

// Before anything loads the plugin.
const bool prepared = [] {
  setenv("TORCH_TPU_TEST_PLUGIN", TORCH_TPU_TEST_PLUGIN_LIBRARY, 1);
  setenv("TORCH_TPU_TEST_PLUGIN_TARGET", TORCH_TPU_EMBEDDED_PLUGIN, 1);
  setenv("TORCH_TPU_TEST_PLUGIN_MODE", "tpu,late=5", 1);
  unsetenv("TORCH_TPU_TEST_PLUGIN_FAULTS");
  return true;
}();

// Calls one of the plugin's own C functions.
template <typename Result = void, typename... Arguments>
Result control(const char* name, Arguments... arguments) {
  test_client();
  static void* const library = dlopen(TORCH_TPU_TEST_PLUGIN_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
  auto* function = reinterpret_cast<Result (*)(Arguments...)>(
      dlsym(library, (std::string("torch_tpu_test_plugin_") + name).c_str()));
  EXPECT_NE(function, nullptr) << name;
  return function(arguments...);
}

class TestPlugin : public testing::Test {
 protected:
  void TearDown() override {
    control("hold_events", 0);
    control("cancel_faults");
  }
  Buffer a_ = upload<float>({1, 2, 3, 4}, DType::kF32);
};

TEST_F(TestPlugin, LooksLikeATpu) {
  const Client& client = test_client();
  EXPECT_EQ(client.platform(), PlatformKind::kTpu);
  EXPECT_EQ(client.platform_name(), "tpu");
  EXPECT_EQ(client.device_kind(0), "TPU test");
  EXPECT_FALSE(client.host_readable());
  EXPECT_FALSE(client.portable_executables());
  EXPECT_EQ(a_.host_pointer().error().code, ErrorCode::kUnavailable);
}

TEST_F(TestPlugin, RefusesPortableExecutables) {
  Result<Executable> portable = test_client().compile(test_add(kType), {.portable = true});
  ASSERT_FALSE(portable.ok());
  EXPECT_EQ(portable.error().message, "test plugin: portable executables are not supported");
}

TEST_F(TestPlugin, ComputesAndDonates) {
  Executable add = compile(test_add(kType, true));
  Buffer sum = run(add, {&a_, &a_}, {0}).take();
  Buffer again = run(add, {&sum, &a_}).take();
  EXPECT_TRUE(sum.deleted());
  EXPECT_EQ(read_back<float>(again, 4), (std::vector<float>{3, 6, 9, 12}));
}

TEST_F(TestPlugin, NothingCompletesWhileHeld) {
  Executable add = compile(test_add(kType));
  ASSERT_TRUE(a_.ready_event().wait().ok());
  control("hold_events", 1);
  Event completion;
  Buffer sum = run(add, {&a_, &a_}, {}, &completion).take();
  std::vector<float> values(4, -1.0f);
  Event copied = sum.to_host(values.data(), 16).take();
  std::atomic<int> calls{0};
  completion.on_ready([&](Status) { ++calls; });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(completion.ready());
  EXPECT_FALSE(sum.ready_event().ready());
  EXPECT_EQ(values[0], -1.0f) << "the copy arrived before its event";
  EXPECT_EQ(calls, 0);
  control("hold_events", 0);
  EXPECT_TRUE(completion.wait().ok());
  EXPECT_TRUE(copied.wait().ok());
  EXPECT_EQ(values[3], 8.0f);
  for (int i = 0; i < 2000 && calls == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(calls, 1);
}

TEST_F(TestPlugin, IndependentWorkCompletesOutOfOrder) {
  Executable add = compile(test_add(kType));
  bool out_of_order = false;
  for (int round = 0; round < 20 && !out_of_order; ++round) {
    std::vector<Event> completions(16);
    std::vector<std::atomic<int>> position(16);
    std::atomic<int> next{0};
    for (size_t i = 0; i < completions.size(); ++i) {
      Buffer sum = run(add, {&a_, &a_}, {}, &completions[i]).take();
      completions[i].on_ready([&, i](Status) { position[i] = next++; });
    }
    while (next < 16) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (size_t i = 1; i < 16; ++i) out_of_order |= position[i] < position[i - 1];
  }
  EXPECT_TRUE(out_of_order);
}

TEST_F(TestPlugin, DependentWorkCompletesInOrder) {
  Executable add = compile(test_add(kType));
  for (int round = 0; round < 20; ++round) {
    Event first, second;
    Buffer sum = run(add, {&a_, &a_}, {}, &first).take();
    Buffer more = run(add, {&sum, &a_}, {}, &second).take();
    ASSERT_TRUE(second.wait().ok());
    EXPECT_TRUE(first.ready());
  }
}

TEST_F(TestPlugin, NeverAliasesHostMemory) {
  alignas(64) float memory[16] = {5};
  std::atomic<int> released{0};
  Buffer buffer = test_client().adopt_host(memory, DType::kF32, {16}, 0, [&] { ++released; }).take();
  for (int i = 0; i < 2000 && released == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(released, 1);
  memory[0] = 7;
  EXPECT_EQ(read_back<float>(buffer, 16)[0], 5.0f);
}

TEST_F(TestPlugin, TheNthExecutionFails) {
  Executable add = compile(test_add(kType, true));
  Buffer value = run(add, {&a_, &a_}, {0}).take();
  control("fail_execute", 2, kResourceExhausted);
  EXPECT_TRUE(run(add, {&a_, &a_}, {0}).ok());
  Result<Buffer> failed = run(add, {&value, &a_});
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kOutOfMemory);
  EXPECT_NE(failed.error().message.find("injected fault <execute>"), std::string::npos);
  EXPECT_FALSE(value.deleted());
  EXPECT_TRUE(run(add, {&value, &a_}).ok());
}

TEST_F(TestPlugin, AnExecutionFailsAfterItsDonation) {
  Executable add = compile(test_add(kType, true));
  Buffer value = run(add, {&a_, &a_}, {0}).take();
  control("fail_execute_after", 1, kInternal);
  Event completion;
  EXPECT_EQ(run(add, {&value, &a_}, {}, &completion).error().code, ErrorCode::kInternal);
  EXPECT_TRUE(value.deleted());
}

TEST_F(TestPlugin, APoisonedOutputPoisonsWhatIsComputedFromIt) {
  Executable add = compile(test_add(kType));
  control("poison_output", 1, kInternal);
  Buffer bad = run(add, {&a_, &a_}).take();
  Event completion;
  Buffer worse = run(add, {&a_, &bad}, {}, &completion).take();
  Buffer good = run(add, {&a_, &a_}).take();
  float values[4];
  EXPECT_FALSE(bad.ready_event().wait().ok());
  EXPECT_FALSE(worse.to_host(values, 16).value().wait().ok());
  EXPECT_FALSE(completion.wait().ok());
  EXPECT_FALSE(bad.copy_to_device(1).value().ready_event().wait().ok());
  EXPECT_EQ(read_back<float>(good, 4), (std::vector<float>{2, 4, 6, 8}));
}

TEST_F(TestPlugin, TransfersAndCompilesFail) {
  control("fail_upload", 1, kResourceExhausted);
  const float value = 1;
  EXPECT_EQ(test_client().from_host(&value, DType::kF32, {}, 0).error().code, ErrorCode::kOutOfMemory);
  std::atomic<int> released{0};
  alignas(64) float memory[16] = {};
  control("fail_upload", 1, kResourceExhausted);
  EXPECT_FALSE(test_client().adopt_host(memory, DType::kF32, {16}, 0, [&] { ++released; }).ok());
  EXPECT_EQ(released, 1);
  control("fail_download", 1, kInternal);
  float values[4];
  EXPECT_FALSE(a_.to_host(values, 16).ok());
  control("fail_compile", 1, kInternal);
  EXPECT_FALSE(test_client().compile(test_add(kType), test_options()).ok());
  EXPECT_TRUE(test_client().compile(test_add(kType), test_options()).ok());
}

TEST_F(TestPlugin, CompilesOfRegionsFailAndTakeLong) {
  const std::string region = "module { func.func private @f0(%x: " + kType + ") -> " + kType +
                             " { return %x : " + kType + " } func.func @main(%x: " + kType + ") -> " + kType +
                             " { %y = \"func.call\"(%x) {callee = @f0} : (" + kType + ") -> " + kType +
                             " return %y : " + kType + " } }";
  const auto compiles = [&] { return test_client().compile(region, test_options()).ok(); };
  ASSERT_TRUE(compiles());
  const long before = control<long>("region_compiles");
  EXPECT_EQ(control<int>("order_faults", "compile_region:1:1:13"), 1);
  EXPECT_TRUE(test_client().compile(test_add(kType), test_options()).ok());
  EXPECT_FALSE(compiles());
  control("slow_regions", 50);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(compiles());
  control("slow_regions", 0);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(50));
  EXPECT_EQ(control<long>("region_compiles") - before, 2);
}

TEST_F(TestPlugin, OrdersByText) {
  Executable add = compile(test_add(kType));
  EXPECT_EQ(control<int>("order_faults", "execute:2:2:8,upload:1:1:13"), 1);
  EXPECT_EQ(control<int>("order_faults", "nonsense:1:1:8"), 0);
  EXPECT_EQ(control<int>("order_faults", "execute:1"), 0);
  const long before = control<long>("executions");
  EXPECT_TRUE(run(add, {&a_, &a_}).ok());
  EXPECT_FALSE(run(add, {&a_, &a_}).ok());
  EXPECT_FALSE(run(add, {&a_, &a_}).ok());
  EXPECT_TRUE(run(add, {&a_, &a_}).ok());
  EXPECT_EQ(control<long>("executions") - before, 4);
}

TEST_F(TestPlugin, BuffersAreForgotten) {
  Executable add = compile(test_add(kType));
  const long before = control<long>("live_buffers");
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(run(add, {&a_, &a_}).ok());
  EXPECT_EQ(control<long>("live_buffers"), before);
}

TEST(TestPluginMode, Words) {
  using test_plugin::parse_mode;
  EXPECT_TRUE(parse_mode("")->host_pointers);
  EXPECT_EQ(parse_mode("tpu")->platform, "tpu");
  EXPECT_EQ(parse_mode("tpu,platform=,late=0.5")->late_ms, 0.5);
  EXPECT_EQ(parse_mode("tpu,platform=")->platform, "");
  EXPECT_FALSE(parse_mode("no_zero_copy")->zero_copy);
  EXPECT_FALSE(parse_mode("no_portable,no_pointer")->portable);
  EXPECT_FALSE(parse_mode("tpuu").has_value());
  EXPECT_FALSE(parse_mode("late=soon").has_value());
}

}  // namespace
}  // namespace torch_tpu::pjrt
