#include "pjrt/ffi.h"

#include <atomic>
#include <thread>

#include "pjrt/test_engine.h"

namespace torch_tpu::pjrt {
namespace {

std::string custom_call(const std::string& name, const std::string& config,
                        const std::string& type = "tensor<2x3xf32>") {
  return test_module("%a: " + type,
                     "  %0 = \"stablehlo.custom_call\"(%a) {call_target_name = \"" + name +
                         "\", has_side_effect = false, api_version = 4 : i32, backend_config = {" + config + "}} : (" +
                         type + ") -> " + type + "\n  \"func.return\"(%0) : (" + type + ") -> ()",
                     type, type);
}

class Ffi : public testing::Test {
 protected:
  void SetUp() override {
    if (!supports_ffi(test_client().plugin())) GTEST_SKIP() << "this plugin cannot call back";
  }
  Buffer input() {
    const float values[6] = {1, 2, 3, 4, 5, 6};
    return test_client().from_host(values, DType::kF32, {2, 3}, 0).take();
  }
};

TEST_F(Ffi, ReadsOperandsAndEveryKindOfAttribute) {
  FfiCall seen;
  ASSERT_TRUE(register_ffi(test_client().plugin(), "torch_tpu_test_scale", [&](const FfiCall& call) -> Status {
                seen = call;
                const double factor = call.real("factor").value();
                for (int i = 0; i < 6; ++i)
                  call.results[0].as<float>()[i] = call.arguments[0].as<float>()[i] * static_cast<float>(factor);
                return {};
              }).ok());
  Executable scale =
      compile(custom_call("torch_tpu_test_scale",
                          "factor = 1.5 : f32, n = -3 : i64, on = true, word = \"x y\", list = array<i64: 4, 5>, "
                          "small = array<i8: -1>, d = {inner = 7 : i32}, wide = 2.5 : f64"));
  Buffer a = input();
  EXPECT_EQ(read_back<float>(run(scale, {&a}).take(), 6), (std::vector<float>{1.5, 3, 4.5, 6, 7.5, 9}));
  EXPECT_EQ(seen.arguments[0].dtype, DType::kF32);
  EXPECT_EQ(seen.arguments[0].shape, (Shape{2, 3}));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(seen.arguments[0].data) % 64, 0u);
  EXPECT_EQ(seen.integer("n").value(), -3);
  EXPECT_EQ(seen.integer("on").value(), 1);
  EXPECT_EQ(seen.text("word").value(), "x y");
  EXPECT_EQ(seen.integers("list").value(), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(seen.integers("small").value(), (std::vector<int64_t>{-1}));
  EXPECT_EQ(seen.integer("d.inner").value(), 7);
  EXPECT_EQ(seen.real("wide").value(), 2.5);
  EXPECT_EQ(seen.integer("word").error().message, "custom call: expected attribute <word> to be an integer");
  EXPECT_FALSE(seen.text("absent").ok());
}

TEST_F(Ffi, ErrorsAndExceptionsAreErrorsOfTheExecution) {
  std::atomic<bool> throws{false};
  ASSERT_TRUE(register_ffi(test_client().plugin(), "torch_tpu_test_fail", [&](const FfiCall&) -> Status {
                if (throws) throw std::runtime_error("thrown");
                return Error{ErrorCode::kInvalidArgument, "singular matrix at <2>"};
              }).ok());
  Executable fail = compile(custom_call("torch_tpu_test_fail", ""));
  Buffer a = input();
  const auto error_of_run = [&] {
    Result<Buffer> result = run(fail, {&a});
    if (!result.ok()) return result.error().message;
    Status late = result.value().ready_event().wait();
    return late.ok() ? std::string() : late.error().message;
  };
  EXPECT_NE(error_of_run().find("singular matrix at <2>"), std::string::npos);
  throws = true;
  EXPECT_NE(error_of_run().find("torch_tpu_test_fail: thrown"), std::string::npos);
}

TEST_F(Ffi, ASecondRegistrationReplacesTheFirst) {
  std::atomic<int> which{0};
  const auto copy = [&which](int number) {
    return [&which, number](const FfiCall& call) -> Status {
      which = number;
      std::memcpy(call.results[0].data, call.arguments[0].data, 24);
      return {};
    };
  };
  ASSERT_TRUE(register_ffi(test_client().plugin(), "torch_tpu_test_copy", copy(1)).ok());
  Executable program = compile(custom_call("torch_tpu_test_copy", ""));
  ASSERT_TRUE(register_ffi(test_client().plugin(), "torch_tpu_test_copy", copy(2)).ok());
  Buffer a = input();
  EXPECT_EQ(read_back<float>(run(program, {&a}).take(), 6)[5], 6.0f);
  EXPECT_EQ(which, 2);
}

TEST_F(Ffi, AnUnknownNameIsACompileError) {
  Result<Executable> bad = test_client().compile(custom_call("torch_tpu_test_nobody", ""), test_options());
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.error().message.find("torch_tpu_test_nobody"), std::string::npos);
}

TEST_F(Ffi, ManyThreadsCallOneHandler) {
  std::atomic<int> calls{0};
  ASSERT_TRUE(register_ffi(test_client().plugin(), "torch_tpu_test_count", [&](const FfiCall& call) -> Status {
                ++calls;
                std::memcpy(call.results[0].data, call.arguments[0].data, 24);
                return {};
              }).ok());
  Executable program = compile(custom_call("torch_tpu_test_count", ""));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      Buffer a = input();
      for (int i = 0; i < 50; ++i) EXPECT_EQ(read_back<float>(run(program, {&a}).take(), 6)[0], 1.0f);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(calls, 200);
}

}  // namespace
}  // namespace torch_tpu::pjrt
