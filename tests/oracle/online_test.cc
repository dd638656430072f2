// The online method runs the same ops in the same order as its reference, at budgets from too small to enough.
#include <gtest/gtest.h>

#include "oracle/online_reference.h"
#include "reprise/io.h"
#include "solve/online/online_run.h"
#include "support/random.h"
#include "support/random_step.h"
#include "support/small_tests.h"

namespace reprise::test {
namespace {

constexpr std::uint64_t kOnlineSteps = kSmallTests ? 20 : 100;

CostedGraph online_step_number(std::uint64_t seed) {
  Random random(seed);
  const StepOptions options{.forward_ops = random.between(3, 16), .backward_ops = random.between(2, 16)};
  return random_step(options, [&](std::int64_t bound) { return random.below(bound); });
}

TEST(OnlineOracleTest, RunsLikeTheReference) {
  int again = 0;
  for (std::uint64_t seed = 0; seed < kOnlineSteps && !::testing::Test::HasFailure(); ++seed) {
    const CostedGraph step = online_step_number(seed);
    SCOPED_TRACE(format_graph(step.graph, step.costs));
    const detail::OnlineView known(step.graph, step.costs);
    const std::int64_t least = known.floor_bytes() - 1;
    const std::int64_t most = detail::OnlineRun(known, {.budget_bytes = Costs::kMaxTotalBytes}).course()->peak_bytes;
    for (int variant = 0; variant < 4; ++variant) {
      const bool ghosts_first = variant % 2 != 0;
      const bool oldest_first = variant / 2 != 0;
      for (std::int64_t part = 0; part <= 6; ++part) {
        const std::int64_t budget = least + (most - least) * part / 6;
        const auto found =
            detail::OnlineRun(
                known, {.budget_bytes = budget, .rules = {.ghosts_first = ghosts_first, .oldest_first = oldest_first}})
                .course();
        const auto expected = online_runs(step, {budget, ghosts_first, oldest_first});
        ASSERT_EQ(found.has_value(), expected.has_value()) << budget << ", variant " << variant;
        if (!found) continue;
        EXPECT_EQ(found->runs, *expected) << budget << ", variant " << variant;
        again += found->runs.size() > step.graph.num_ops() ? 1 : 0;
      }
    }
  }
  EXPECT_GT(again, static_cast<int>(kOnlineSteps));
}

}  // namespace
}  // namespace reprise::test
