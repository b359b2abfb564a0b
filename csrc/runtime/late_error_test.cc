#include "runtime/late_error.h"

#include <gtest/gtest.h>

#include "runtime/test_engine.h"

namespace torch_tpu::runtime {
namespace {

ValueRef flag(int32_t word, int device = 0) {
  Result<pjrt::Buffer> buffer = testing::engine().client().from_host(&word, DType::kI32, {}, device);
  EXPECT_TRUE(buffer.ok());
  return ValueRef(new BufferValue(buffer.take(), {DType::kI32, {}}, device, 4));
}

TEST(LateError, NothingIsPendingAtFirst) {
  EXPECT_TRUE(check_flags(0, true).ok());
  watch_flag({}, "aten::index.Tensor", "");
  EXPECT_TRUE(check_flags(0, true).ok());
}

TEST(LateError, ASetFlagIsReportedOnceWithItsOpAndLine) {
  watch_flag(flag(0), "aten::gather", "model.py:11");
  watch_flag(flag(1), "aten::index.Tensor", "model.py:12");
  EXPECT_TRUE(check_flags(1, true).ok()) << "the other device has none";
  const Status status = check_flags(0, true);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kIndex);
  EXPECT_EQ(status.error().message, "aten::index.Tensor: index out of range (submitted at model.py:12)");
  EXPECT_TRUE(check_flags(0, true).ok());
}

TEST(LateError, ASentenceOfItsOwnIsNoIndexError) {
  watch_flag(flag(1), "aten::binary_cross_entropy", "model.py:15", "all elements must be between 0 and 1");
  const Status status = check_flags(0, true);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(status.error().message,
            "aten::binary_cross_entropy: all elements must be between 0 and 1 (submitted at model.py:15)");
}

TEST(LateError, LaterOnesAreToldWithTheFirst) {
  watch_flag(flag(1, 1), "aten::index.Tensor", "");
  watch_flag(flag(1, 1), "aten::gather", "model.py:13");
  const Status status = check_flags(1, false);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "aten::index.Tensor: index out of range, and 1 more since");
  EXPECT_TRUE(check_flags(1, true).ok());
}

// Flags are i32; the slow program's f32 result has one for every element, so its first word is non-zero too.
TEST(LateError, WithoutWaitingOnlyFinishedProgramsAreLookedAt) {
  const pjrt::Executable program = testing::compile(testing::slow(1'000'000, 40));
  testing::Submitted submitted = testing::submit(program, testing::upload(std::vector<float>(1'000'000, 1.0F)));
  pjrt::Event completion = std::move(submitted.completion);
  watch_flag(submitted.result, "aten::embedding", "model.py:14");
  EXPECT_TRUE(check_flags(0, false).ok()) << "still running";
  EXPECT_TRUE(completion.wait().ok());
  // The word that is copied out must have the flag's size where the engine reads in place.
  const Status status = check_flags(0, false);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kIndex);
}

TEST(LateError, ALoopThatNeverReadsStaysBoundedAndKeepsItsErrors) {
  std::vector<ValueRef> flags;
  for (int i = 0; i < 1000; ++i) {
    ValueRef word = flag(i == 10 ? 1 : 0);
    flags.push_back(word);
    watch_flag(std::move(word), "aten::index.Tensor", "model.py:" + std::to_string(i));
  }
  int64_t held = 0;
  for (const ValueRef& word : flags) held += word.use_count() > 1;
  EXPECT_LE(held, 513);
  const Status status = check_flags(0, true);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("model.py:10"), std::string::npos) << status.error().message;
  for (const ValueRef& word : flags) EXPECT_EQ(word.use_count(), 1);
}

}  // namespace
}  // namespace torch_tpu::runtime
