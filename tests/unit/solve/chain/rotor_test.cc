#include "solve/chain/rotor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace reprise::detail {
namespace {

using testing::ElementsAre;
using enum ChainAction::Kind;

std::vector<RotorStage> three_stages() {
  return std::vector<RotorStage>(
      3, {.forward_ns = 1, .backward_ns = 1, .output_bytes = 1, .saved_bytes = 2, .gradient_bytes = 1});
}

TEST(RotorTest, SavesAllWhereAllFits) {
  const auto answer = rotor(three_stages(), 1, 8);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->time_ns, 6);
  EXPECT_THAT(answer->actions, ElementsAre(ChainAction{kForwardSaveAll, 1}, ChainAction{kForwardSaveAll, 2},
                                           ChainAction{kForwardSaveAll, 3}, ChainAction{kBackward, 3},
                                           ChainAction{kBackward, 2}, ChainAction{kBackward, 1}));
}

TEST(RotorTest, RunsOneStageAgainWhereOneByteIsMissing) {
  const auto answer = rotor(three_stages(), 1, 7);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->time_ns, 7);
}

TEST(RotorTest, OneTableAnswersAllBudgets) {
  const RotorTable table(three_stages(), 1, 20);
  EXPECT_EQ(table.unit_bytes(), 1);
  ASSERT_TRUE(table.least_memory_bytes().has_value());
  const std::int64_t least = *table.least_memory_bytes();
  EXPECT_FALSE(table.solve(least - 1).has_value());
  std::int64_t last = 1000;
  for (std::int64_t m = least; m <= 30; ++m) {
    const auto answer = table.solve(m);
    ASSERT_TRUE(answer.has_value());
    EXPECT_LE(answer->time_ns, last);
    last = answer->time_ns;
    const auto alone = rotor(three_stages(), 1, m);
    ASSERT_TRUE(alone.has_value());
    EXPECT_EQ(answer->time_ns, alone->time_ns);
  }
}

TEST(RotorTest, SaysWhenNothingFits) {
  EXPECT_FALSE(rotor(three_stages(), 1, 3).has_value());
  EXPECT_FALSE(rotor(three_stages(), 1, 0).has_value());
  EXPECT_FALSE(RotorTable(three_stages(), 50, 20).solve(20).has_value());
  EXPECT_FALSE(RotorTable(three_stages(), 50, 20).least_memory_bytes().has_value());
}

TEST(RotorTest, NothingToDoTakesNoTime) {
  const auto answer = rotor({}, 1, 1);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->time_ns, 0);
  EXPECT_TRUE(answer->actions.empty());
}

TEST(RotorTest, FewerSlotsAreNeverFaster) {
  std::vector<RotorStage> stages;
  for (int k = 0; k < 12; ++k) {
    const std::int64_t bytes = 100 + (37 * k) % 50;
    stages.push_back({.forward_ns = 10 + k % 3,
                      .backward_ns = 20,
                      .output_bytes = bytes,
                      .saved_bytes = 2 * bytes,
                      .gradient_bytes = bytes,
                      .backward_overhead_bytes = 150});
  }
  const auto exact = rotor(stages, 100, 1500, 1500);
  const auto coarse = rotor(stages, 100, 1500, 60);
  ASSERT_TRUE(exact.has_value());
  ASSERT_TRUE(coarse.has_value());
  EXPECT_LE(exact->time_ns, coarse->time_ns);
}

}  // namespace
}  // namespace reprise::detail
