#include "solve/chain/revolve.h"

#include <gtest/gtest.h>

#include <limits>

namespace reprise::detail {
namespace {

TEST(RevolveTest, KnownNumbersOfForwardRuns) {
  EXPECT_EQ(revolve_forward_runs(10, 3), 15);
  EXPECT_EQ(revolve_forward_runs(30, 5), 62);
  EXPECT_EQ(revolve_forward_runs(100, 5), 316);
  EXPECT_EQ(revolve_forward_runs(1, 1), 0);
  EXPECT_EQ(revolve_forward_runs(0, 1), 0);
  EXPECT_EQ(revolve_forward_runs(7, 7), 6) << "every state stored";
}

TEST(RevolveTest, LargeNumbersDoNotOverflow) {
  constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max();
  EXPECT_EQ(revolve_forward_runs(kMost, 1), std::int64_t{kMost} * ((kMost - 1) / 2));
  EXPECT_EQ(revolve_forward_runs(kMost, kMost), std::int64_t{kMost} - 1);
  EXPECT_EQ(revolve_forward_runs(kMost, kMost - 2), 2 * std::int64_t{kMost} - kMost) << "one state less than needed";
  for (std::uint32_t states = 1; states < 40; ++states) {
    EXPECT_LT(revolve_forward_runs(kMost, states + 1), revolve_forward_runs(kMost, states));
  }
}

TEST(RevolveTest, TheFirstCutOfTenStagesIsAfterTheFourth) {
  const std::vector<ChainAction> actions = revolve_schedule(10, 3);
  EXPECT_EQ(actions[0], (ChainAction{ChainAction::Kind::kForwardKeepInput, 1}));
  EXPECT_EQ(actions[3], (ChainAction{ChainAction::Kind::kForwardDrop, 4}));
  EXPECT_EQ(actions[4], (ChainAction{ChainAction::Kind::kForwardKeepInput, 5}));
  EXPECT_EQ(actions.size(), 15 + 2 * 10);
}

TEST(RevolveTest, NoStagesNoActions) { EXPECT_TRUE(revolve_schedule(0, 3).empty()); }

}  // namespace
}  // namespace reprise::detail
