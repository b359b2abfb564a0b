#include "runtime/statistics.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace torch_tpu::runtime {
namespace {

TEST(Statistics, FallbacksAreCountedByOpFromAllThreads) {
  const int64_t before = totals().fallbacks;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) count_fallback(i % 2 ? "aten::svd" : "aten::eig");
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(totals().fallbacks - before, 400);
  EXPECT_EQ(fallbacks_by_op().at("aten::svd"), 200);
  EXPECT_EQ(fallbacks_by_op().at("aten::eig"), 200);
}

}  // namespace
}  // namespace torch_tpu::runtime
