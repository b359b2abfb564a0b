#include "fuse/cutter.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <utility>

namespace torch_tpu::fuse {
namespace {

using Ops = std::vector<uint64_t>;

Ops range(uint64_t from, size_t count) {
  Ops ops(count);
  std::iota(ops.begin(), ops.end(), from);
  return ops;
}

// Feeds the ops; the sizes of the regions that were cut.
std::vector<size_t> feed(Cutter& cutter, const Ops& ops) {
  std::vector<size_t> regions;
  size_t size = 0;
  for (uint64_t op : ops) {
    if (cutter.ends_before(op)) {
      regions.push_back(size);
      size = 0;
      cutter.restart();
    }
    cutter.append(op);
    ++size;
  }
  return regions;
}

Ops repeated(const Ops& ops, int times) {
  Ops all;
  for (int i = 0; i < times; ++i) all.insert(all.end(), ops.begin(), ops.end());
  return all;
}

TEST(Cutter, LearnsAPeriodFromTwoRoundsAndCutsEveryRoundAfterwards) {
  Cutter cutter;
  EXPECT_EQ(feed(cutter, repeated(range(1, 20), 6)), (std::vector<size_t>{40, 20, 20, 20}));
  EXPECT_EQ(cutter.known_periods(), 1u);
}

TEST(Cutter, DoesNotCutWhatNeverRepeats) {
  Cutter cutter;
  EXPECT_TRUE(feed(cutter, range(1, 5000)).empty());
}

TEST(Cutter, JoinsShortPeriods) {
  Cutter cutter;
  EXPECT_EQ(feed(cutter, repeated(range(1, 3), 12)), (std::vector<size_t>{18, 9}));
}

// The first op of a step also occurs inside of it: only the whole step is a period.
TEST(Cutter, FirstOpInsideOfTheStep) {
  Ops step = range(1, 10);
  step.push_back(1);
  const Ops tail = range(50, 9);
  step.insert(step.end(), tail.begin(), tail.end());
  Cutter cutter;
  const std::vector<size_t> regions = feed(cutter, repeated(step, 5));
  EXPECT_EQ(regions, (std::vector<size_t>{40, 20, 20}));
}

// Twelve equal layers are cut layer by layer at first; in the end it is the step that returns, at one place of it.
TEST(Cutter, EqualLayers) {
  Ops step = repeated(range(1, 10), 12);
  const Ops rest = range(100, 60);
  step.insert(step.end(), rest.begin(), rest.end());
  Cutter cutter;
  const std::vector<size_t> regions = feed(cutter, repeated(step, 12));
  ASSERT_GT(regions.size(), 12u);
  // From some point on, regions repeat with the period of the step.
  const size_t last = regions.size();
  size_t period = 0, sum = 0;
  while (sum < step.size()) sum += regions[last - 1 - period++];
  EXPECT_EQ(sum, step.size());
  for (size_t i = 0; i < period; ++i) EXPECT_EQ(regions[last - 1 - i], regions[last - 1 - i - period]);
}

// The first round is often another one: the repetition begins somewhere in the middle.
TEST(Cutter, AnIrregularBeginningDoesNotHideThePeriod) {
  for (const size_t length : {20u, 100u, 700u}) {
    Ops ops = range(10'000, 37);
    const Ops rounds = repeated(range(1, length), static_cast<int>(9000 / length));
    ops.insert(ops.end(), rounds.begin(), rounds.end());
    Cutter cutter;
    const std::vector<size_t> regions = feed(cutter, ops);
    ASSERT_GT(regions.size(), 3u) << length;
    EXPECT_EQ(regions.back(), length);
  }
}

// What comes after a backward pass, the optimizer's ops, goes with the next round.
TEST(Cutter, TheBeginningOfABackwardPassIsACut) {
  Cutter cutter;
  std::vector<size_t> regions;
  size_t size = 0;
  auto op = [&](uint64_t id, int64_t pass) {
    if (cutter.ends_before(id, pass)) {
      regions.push_back(std::exchange(size, 0));
      cutter.restart();
    }
    cutter.append(id, pass);
    ++size;
  };
  for (int64_t round = 0; round < 4; ++round) {
    for (uint64_t id = 0; id < 6 + (round == 0 ? 3u : 0u); ++id) op(id, -1);
    for (uint64_t id = 20; id < 26; ++id) op(id, round);
    for (uint64_t id = 40; id < 45; ++id) op(id, -1);
  }
  EXPECT_EQ(regions, (std::vector<size_t>{9, 17, 17, 17}));
}

// Another stream in between: the known period is found again at once.
TEST(Cutter, RemembersPeriods) {
  Cutter cutter;
  (void)feed(cutter, repeated(range(1, 20), 3));
  cutter.restart();
  (void)feed(cutter, range(1000, 77));
  cutter.restart();
  EXPECT_EQ(feed(cutter, repeated(range(1, 20), 3)), (std::vector<size_t>{20, 20}));
}

}  // namespace
}  // namespace torch_tpu::fuse
