#include "solve/front.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "fixtures/odd_steps.h"
#include "fixtures/steps.h"
#include "unit/papers/small_view.h"

namespace reprise::detail {
namespace {

TEST(FrontTest, KeepsWhatNothingBeats) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const auto [graph, costs] =
        test::odd_step(seed, {.forward_ops = 10, .backward_ops = 8, .forward_only = seed % 2 == 0});
    const Problem problem(graph, costs);
    Front front(problem);
    std::vector<Simulation> seen;
    Simulator simulator(problem.step(), problem.costs());
    for (std::uint64_t i = 0; i < 20; ++i) {
      const Blocks blocks = test::random_blocks(seed * 100 + i, problem.view());
      front.add(blocks);
      for (const bool keep_last : {true, false}) {
        seen.push_back(simulator.run(problem.plan(blocks, keep_last, Expansion::kLean)));
      }
    }
    std::int64_t time_before = std::numeric_limits<std::int64_t>::max();
    for (const auto& [peak, point] : front.points()) {
      EXPECT_EQ(point.simulation.peak_bytes, peak);
      EXPECT_LT(point.simulation.time_ns, time_before) << "seed " << seed;
      time_before = point.simulation.time_ns;
    }
    for (const Simulation& one : seen) {
      const Front::Point* best = front.fastest(one.peak_bytes);
      ASSERT_NE(best, nullptr) << "seed " << seed;
      EXPECT_LE(best->simulation.peak_bytes, one.peak_bytes);
      EXPECT_LE(best->simulation.time_ns, one.time_ns) << "seed " << seed;
    }
  }
}

TEST(FrontTest, SimulatesEqualBlocksOnce) {
  const auto [graph, costs] = test::residual_block_step();
  const Problem problem(graph, costs);
  Front front(problem);
  EXPECT_EQ(front.fastest(1'000'000), nullptr);
  front.add(problem.one_block());
  const std::size_t simulated = front.simulated();
  front.add(problem.one_block());
  EXPECT_EQ(front.simulated(), simulated);
  EXPECT_EQ(front.fastest(-1), nullptr);
}

}  // namespace
}  // namespace reprise::detail
