#include "store/single_flight.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace torch_tpu::store {
namespace {

TEST(SingleFlight, ThreadsWithOneKeyShareOneRun) {
  SingleFlight<int, std::string> flights;
  std::atomic<int> runs{0}, right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      const std::string value = flights.run(1, [&] {
        ++runs;
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        return std::string("done");
      });
      right += value == "done";
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(right, 8);
}

TEST(SingleFlight, OtherKeysDoNotWait) {
  SingleFlight<int, int> flights;
  std::atomic<bool> inner_done{false};
  const int outer = flights.run(1, [&] {
    std::thread other([&] {
      flights.run(2, [&] {
        inner_done = true;
        return 2;
      });
    });
    other.join();
    return 1;
  });
  EXPECT_EQ(outer, 1);
  EXPECT_TRUE(inner_done);
}

TEST(SingleFlight, ALaterCallRunsAgain) {
  SingleFlight<int, int> flights;
  int runs = 0;
  for (int i = 0; i < 3; ++i) flights.run(1, [&] { return ++runs; });
  EXPECT_EQ(runs, 3);
}

}  // namespace
}  // namespace torch_tpu::store
