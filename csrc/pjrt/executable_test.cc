#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "pjrt/test_engine.h"

namespace torch_tpu::pjrt {
namespace {

const std::string kType = "tensor<4xf32>";

TEST(Execute, Adds) {
  Executable add = compile(test_add(kType));
  EXPECT_EQ(add.output_count(), 1u);
  Buffer a = upload<float>({1, 2, 3, 4}, DType::kF32), b = upload<float>({10, 20, 30, 40}, DType::kF32);
  Event completion;
  Result<Buffer> sum = run(add, {&a, &b}, {}, &completion);
  ASSERT_TRUE(sum.ok()) << sum.error().message;
  EXPECT_TRUE(completion);
  EXPECT_TRUE(completion.wait().ok());
  EXPECT_TRUE(completion.ready());
  EXPECT_EQ(read_back<float>(sum.value(), 4), (std::vector<float>{11, 22, 33, 44}));
  EXPECT_FALSE(a.deleted());
}

TEST(Execute, OnTheOtherDevice) {
  CompileOptions options = test_options();
  options.device = 1;
  Result<Executable> add = test_client().compile(test_add(kType), options);
  ASSERT_TRUE(add.ok()) << add.error().message;
  Buffer a = upload<float>({1, 2, 3, 4}, DType::kF32, 1);
  PJRT_Buffer* arguments[] = {a.get(), a.get()};
  PJRT_Buffer* output = nullptr;
  Result<Event> done = add.value().execute({.arguments = arguments, .argument_count = 2, .device = 1}, &output, 1);
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_FALSE(done.value());
  EXPECT_EQ(read_back<float>(Buffer(&test_client(), output), 4), (std::vector<float>{2, 4, 6, 8}));
}

TEST(Execute, BoundToADevice) {
  Result<Executable> add = test_client().compile(test_add(kType), {.portable = false, .device = 1});
  ASSERT_TRUE(add.ok()) << add.error().message;
  Buffer a = upload<float>({1, 2, 3, 4}, DType::kF32, 1), wrong = upload<float>({1, 2, 3, 4}, DType::kF32, 0);
  EXPECT_EQ(read_back<float>(run(add.value(), {&a, &a}).take(), 4), (std::vector<float>{2, 4, 6, 8}));
  EXPECT_FALSE(run(add.value(), {&wrong, &wrong}).ok());
}

TEST(Execute, ManyOutputsAndNoArguments) {
  std::string body, values, types;
  for (int i = 0; i < 20; ++i) {
    const std::string n = std::to_string(i);
    body +=
        "  %" + n + " = \"stablehlo.constant\"() {value = dense<" + n + "> : tensor<2xi32>} : () -> tensor<2xi32>\n";
    values += (i ? ", %" : "%") + n;
    types += i ? ", tensor<2xi32>" : "tensor<2xi32>";
  }
  const std::string text = "module @m {\n\"func.func\"() ({\n" + body + "  \"func.return\"(" + values + ") : (" +
                           types + ") -> ()\n}) {function_type = () -> (" + types +
                           "), sym_name = \"main\"} : () -> ()\n}\n";
  Executable constants = compile(text);
  ASSERT_EQ(constants.output_count(), 20u);
  std::vector<PJRT_Buffer*> raw(20);
  ASSERT_TRUE(constants.execute({}, raw.data(), raw.size()).ok());
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(read_back<int32_t>(Buffer(&test_client(), raw[static_cast<size_t>(i)]), 2), (std::vector<int32_t>{i, i}));
}

TEST(Execute, EmptyShapes) {
  Executable add = compile(test_add("tensor<0x3xf32>"));
  Buffer empty = test_client().from_host(nullptr, DType::kF32, {0, 3}, 0).take();
  Result<Buffer> sum = run(add, {&empty, &empty});
  ASSERT_TRUE(sum.ok()) << sum.error().message;
  EXPECT_TRUE(sum.value().ready_event().wait().ok());
}

TEST(Execute, WrongCallsAreErrorsAndTheExecutableStaysUsable) {
  Executable add = compile(test_add(kType));
  Buffer a = upload<float>({1, 2, 3, 4}, DType::kF32), other = upload<double>({1, 2, 3, 4}, DType::kF64);
  PJRT_Buffer* arguments[] = {a.get(), nullptr};
  PJRT_Buffer* outputs[3] = {};
  EXPECT_EQ(add.execute({.arguments = arguments, .argument_count = 2}, outputs, 1).error().message,
            "execute: argument <1> has no buffer");
  arguments[1] = a.get();
  EXPECT_EQ(add.execute({.arguments = arguments, .argument_count = 2}, outputs, 3).error().message,
            "execute: wrong number of outputs, got <3>, expected <1>");
  EXPECT_EQ(add.execute({.arguments = arguments, .argument_count = 2, .device = 5}, outputs, 1).error().message,
            "execute: there is no device <5>");
  EXPECT_FALSE(add.execute({.arguments = arguments, .argument_count = 1}, outputs, 1).ok());
  EXPECT_FALSE(run(add, {&a, &other}).ok());
  EXPECT_FALSE(Executable().execute({.arguments = arguments, .argument_count = 2}, outputs, 1).ok());
  EXPECT_EQ(read_back<float>(run(add, {&a, &a}).take(), 4), (std::vector<float>{2, 4, 6, 8}));
}

constexpr size_t kLarge = 1 << 16;
const std::string kLargeType = "tensor<65536xf32>";

TEST(Donation, TheResultTakesTheMemory) {
  Executable add = compile(test_add(kLargeType, true));
  Buffer one = upload(std::vector<float>(kLarge, 1.0f), DType::kF32);
  Buffer value = run(add, {&one, &one}, {0}).take();  // an output: memory of the engine's own
  ASSERT_TRUE(value.ready_event().wait().ok());
  const bool readable = test_client().host_readable();
  const void* before = readable ? value.host_pointer().value() : nullptr;
  Result<Buffer> sum = run(add, {&value, &one});
  ASSERT_TRUE(sum.ok()) << sum.error().message;
  EXPECT_TRUE(value.deleted());
  EXPECT_FALSE(one.deleted());
  EXPECT_EQ(read_back<float>(sum.value(), kLarge)[77], 3.0f);
  if (readable) {
    EXPECT_EQ(sum.value().host_pointer().value(), before);
  }
  float unused[kLarge];
  EXPECT_FALSE(value.to_host(unused, sizeof(unused)).ok() && value.ready_event().wait().ok()) << "read after donation";
}

TEST(Donation, AVetoKeepsTheArgument) {
  Executable add = compile(test_add(kLargeType, true));
  Buffer one = upload(std::vector<float>(kLarge, 1.0f), DType::kF32);
  Buffer value = run(add, {&one, &one}, {0}).take();
  Result<Buffer> sum = run(add, {&value, &one}, {0});
  ASSERT_TRUE(sum.ok()) << sum.error().message;
  EXPECT_FALSE(value.deleted());
  EXPECT_EQ(read_back<float>(sum.value(), kLarge)[5], 3.0f);
  EXPECT_EQ(read_back<float>(value, kLarge)[5], 2.0f);
}

TEST(Compile, AWrongTextIsAnErrorWithAPlace) {
  Result<Executable> bad = test_client().compile("module {\n  this is not MLIR\n}\n", test_options());
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.error().message.find("-:2:"), std::string::npos) << bad.error().message;
  EXPECT_FALSE(test_client().compile("", test_options()).ok());
}

TEST(Compile, AnUnknownOptionIsAnError) {
  CompileOptions options = test_options();
  options.overrides["no_such_flag"] = true;
  EXPECT_NE(
      test_client().compile(test_add(kType), options).error().message.find("No such compile option: 'no_such_flag'"),
      std::string::npos);
}

TEST(Compile, KnownOptionsTakeEffect) {
  // Without the option XLA:CPU drops NaN in maximum.
  const std::string text =
      test_module("%a: tensor<1xf32>, %b: tensor<1xf32>",
                  "  %0 = \"stablehlo.maximum\"(%a, %b) : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xf32>\n"
                  "  \"func.return\"(%0) : (tensor<1xf32>) -> ()",
                  "tensor<1xf32>, tensor<1xf32>", "tensor<1xf32>");
  CompileOptions options = test_options();
  options.overrides["xla_cpu_enable_fast_min_max"] = false;
  Result<Executable> maximum = test_client().compile(text, options);
  ASSERT_TRUE(maximum.ok()) << maximum.error().message;
  Buffer a = upload<float>({1}, DType::kF32),
         nan = upload<float>({std::numeric_limits<float>::quiet_NaN()}, DType::kF32);
  EXPECT_TRUE(std::isnan(read_back<float>(run(maximum.value(), {&a, &nan}).take(), 1)[0]));
}

TEST(Compile, WrongDeviceIsAnError) {
  EXPECT_EQ(test_client().compile(test_add(kType), {.portable = false, .device = 4}).error().message,
            "compile: there is no device <4>");
}

TEST(Serialize, ALoadedCopyRuns) {
  Result<std::string> blob = compile(test_add(kType)).serialize();
  ASSERT_TRUE(blob.ok()) << blob.error().message;
  Result<Executable> loaded = test_client().deserialize(blob.value());
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  Buffer a = upload<float>({1, 2, 3, 4}, DType::kF32);
  EXPECT_EQ(read_back<float>(run(loaded.value(), {&a, &a}).take(), 4), (std::vector<float>{2, 4, 6, 8}));
  EXPECT_FALSE(test_client().deserialize(blob.value().substr(0, blob.value().size() / 2)).ok());
  EXPECT_FALSE(test_client().deserialize("junk").ok());
}

TEST(Statistics, MemoryAndCost) {
  Executable add = compile(test_add(kLargeType));
  Result<MemoryStats> memory = add.memory_stats();
  ASSERT_TRUE(memory.ok()) << memory.error().message;
  EXPECT_EQ(memory.value().arguments, static_cast<int64_t>(2 * kLarge * sizeof(float)));
  EXPECT_EQ(memory.value().outputs, static_cast<int64_t>(kLarge * sizeof(float)));
  Result<std::map<std::string, double>> cost = add.cost_analysis();
  ASSERT_TRUE(cost.ok()) << cost.error().message;
  if (!cost.value().empty()) {
    EXPECT_EQ(cost.value()["flops"], static_cast<double>(kLarge));
  }
}

TEST(Threads, ManyThreadsShareOneExecutable) {
  Executable add = compile(test_add(kType));
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Buffer a = upload<float>(std::vector<float>(4, static_cast<float>(t)), DType::kF32);
      for (int i = 0; i < 200; ++i)
        wrong += read_back<float>(run(add, {&a, &a}).take(), 4) != std::vector<float>(4, static_cast<float>(2 * t));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// Runs in a child, because there is no way back from abandon_all().
TEST(Abandon, HandlesBecomeInert) {
  Executable add = compile(test_add(kType));
  Buffer a = upload<float>({1, 2, 3, 4}, DType::kF32);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    abandon_all();
    int failures = !abandoned();
    {
      Executable mine = std::move(add);
      Buffer buffer = std::move(a);
      float values[4];
      failures += run(mine, {&buffer, &buffer}).ok();
      failures += buffer.to_host(values, sizeof(values)).ok();
      failures += buffer.ready_event().wait().ok();
      failures += !buffer.deleted();
      failures += mine.serialize().ok();
      failures += test_client().from_host(values, DType::kF32, {4}, 0).ok();
      failures += test_client().compile(test_add(kType), test_options()).error().code != ErrorCode::kUnavailable;
    }
    _exit(failures);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_FALSE(a.deleted());
}

}  // namespace
}  // namespace torch_tpu::pjrt
