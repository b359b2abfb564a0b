#include "store/compile_log.h"

#include <gtest/gtest.h>

namespace torch_tpu::store {
namespace {

TEST(CompileLog, KeepsTheNewestTenThousandOldestFirst) {
  for (int i = 0; i < 10'050; ++i) {
    CompileRecord record;
    record.op = std::to_string(i);
    append_to_log(std::move(record));
  }
  const std::vector<CompileRecord> log = compile_log();
  ASSERT_EQ(log.size(), 10'000u);
  EXPECT_EQ(log.back().op, "10049");
  EXPECT_EQ(log.front().op, "50");
}

}  // namespace
}  // namespace torch_tpu::store
