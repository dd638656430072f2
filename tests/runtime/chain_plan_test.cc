// Compares the plans of small chains with all ways to divide them into parts.
#include "runtime/checkpoint/chain_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "reprise/error.h"
#include "support/random.h"

namespace reprise {
namespace {

using Part = ChainPlan::Part;

// Two stages: the first has an output of 10 bytes and saves 3, the second has an output of 4 bytes, which its backward
// reads.
TEST(ChainPlan, CountsWhatIsHeldByHand) {
  const std::vector<Stage> stages = {{.output_bytes = 10, .saved_bytes = 3, .backward_bytes = 1},
                                     {.output_bytes = 4, .reads_output = true, .backward_bytes = 10}};
  // At the backward of the second stage there are 13 bytes of the first, 8 of the output and its gradient, and 10 that
  // are made.
  EXPECT_EQ(peak_bound(stages, {{1, false}, {1, false}}, 0), 13 + 8 + 10);
  // At the backward of the second stage there are 8 bytes of the caller's output and its gradient, 13 of the first
  // stage, which has run again, 4 of the output, which was made again, and 10 that are made.
  EXPECT_EQ(peak_bound(stages, {{2, true}}, 0), 4 + 4 + 13 + 4 + 10);
  EXPECT_EQ(peak_bound(stages, {{2, true}}, 100), 4 + 4 + 13 + 4 + 10 + 100);
}

std::vector<Stage> random_stages(test::Random& random) {
  std::vector<Stage> stages(static_cast<std::size_t>(random.between(1, 6)));
  for (Stage& stage : stages) {
    stage = {.forward_ns = random.between(0, 6),
             .output_bytes = random.between(0, 9),
             .saved_bytes = random.chance(50) ? random.between(0, 9) : 0,
             .reads_output = random.chance(50),
             .forward_bytes = random.chance(30) ? random.between(0, 9) : 0,
             .backward_bytes = random.between(0, 9),
             .gradient_bytes = random.chance(50) ? random.between(0, 3) : 0,
             .state_bytes = random.chance(30) ? random.between(0, 2) : 0};
  }
  return stages;
}

std::vector<std::vector<Part>> all_parts(std::int64_t stages) {
  if (stages == 0) return {{}};
  std::vector<std::vector<Part>> all;
  for (std::int64_t length = 1; length <= stages; ++length) {
    for (std::vector<Part> rest : all_parts(stages - length)) {
      rest.push_back({length, true});
      all.push_back(rest);
      if (length > 1) continue;
      rest.back().checkpoint = false;
      all.push_back(rest);
    }
  }
  return all;
}

std::int64_t recomputed_ns(const std::vector<Stage>& stages, const std::vector<Part>& parts) {
  std::int64_t total = 0;
  std::size_t k = 0;
  for (const Part& part : parts) {
    for (std::int64_t i = 0; i < part.layers; ++i) total += part.checkpoint ? stages[k++].forward_ns : (++k, 0);
  }
  return total;
}

TEST(ChainPlan, IsTheFastestOfAllThatFit) {
  test::Random random(1);
  for (int round = 0; round < 300; ++round) {
    const std::vector<Stage> stages = random_stages(random);
    const std::int64_t random_state = random.between(0, 2);
    const std::int64_t budget = random.between(5, 60);
    std::int64_t smallest = std::numeric_limits<std::int64_t>::max();
    std::int64_t fastest = smallest;
    for (const std::vector<Part>& parts : all_parts(static_cast<std::int64_t>(stages.size()))) {
      const std::int64_t peak = peak_bound(stages, parts, random_state);
      smallest = std::min(smallest, peak);
      if (peak <= budget) fastest = std::min(fastest, recomputed_ns(stages, parts));
    }
    try {
      const ChainPlan plan = plan_chain(stages, random_state, budget);
      EXPECT_LE(plan.peak_bytes, budget);
      EXPECT_EQ(recomputed_ns(stages, plan.parts), fastest);
    } catch (const InputError& error) {
      EXPECT_GT(smallest, budget);
      EXPECT_TRUE(std::string(error.what()).ends_with("is " + std::to_string(smallest))) << error.what();
    }
  }
}

TEST(ChainPlan, CountsLayersOfItsStages) {
  const std::vector<Stage> stages = {{.layers = 2, .output_bytes = 1}, {.layers = 3, .output_bytes = 1}};
  std::int64_t layers = 0;
  for (const Part& part : plan_chain(stages, 0, 100).parts) layers += part.layers;
  EXPECT_EQ(layers, 5);
}

}  // namespace
}  // namespace reprise
