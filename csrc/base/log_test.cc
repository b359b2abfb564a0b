#include "base/log.h"

#include <gtest/gtest.h>

namespace torch_tpu {
namespace {

TEST(Log, ShowsWhatTheLevelAsksFor) {
  const log::Level before = log::level();
  log::set_level(log::Level::kWarn);
  testing::internal::CaptureStderr();
  log::error("one");
  log::warn("two");
  log::info("three");
  log::set_level(log::Level::kOff);
  log::error("four");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "torch_tpu error: one\ntorch_tpu warn: two\n");
  log::set_level(before);
}

}  // namespace
}  // namespace torch_tpu
