// Compares the seven networks of data/papers with numbers that were worked out independently of this project: families
// of lower sets, smallest budgets to the byte, and Chen's table.
#include <gtest/gtest.h>

#include "golden/papers_graph.h"
#include "papers/lower_sets.h"
#include "reprise/solve.h"
#include "support/costed.h"

namespace reprise::test {
namespace {

struct Network {
  const char* name;
  std::size_t lower_sets;
  std::size_t pairs;  // pairs of a lower set and a larger one that contains it
  std::size_t ancestor_sets;
  std::int64_t smallest_budget;
  std::int64_t smallest_approximate_budget;
};
constexpr Network kNetworks[] = {
    {"vgg19", 47, 1'081, 47, 2'106'589'184, 2'106'589'184},
    {"unet", 331, 28'635, 61, 5'545'689'088, 5'784'403'968},
    {"resnet50", 241, 28'488, 177, 1'258'815'488, 1'310'195'712},
    {"resnet152", 581, 168'058, 517, 1'464'336'384, 1'464'336'384},
    {"densenet161", 569, 161'596, 569, 1'676'279'808, 1'676'279'808},
#ifndef REPRISE_SMALL_TESTS
    {"pspnet", 12'533, 16'579'783, 386, 1'193'842'184, 1'227'019'776},
    {"googlenet", 27'358, 121'451'538, 135, 488'112'128, 488'112'128},
#endif
};

TEST(PapersTest, FamiliesAreAsLargeAsKnown) {
  for (const Network& network : kNetworks) {
    SCOPED_TRACE(network.name);
    const detail::ForwardView view = detail::forward_view(papers_graph(network.name));
    const auto family = detail::all_lower_sets(view, 100'000);
    ASSERT_TRUE(family.has_value());
    EXPECT_EQ(family->size(), network.lower_sets);
    EXPECT_EQ(detail::ancestor_sets(view).size(), network.ancestor_sets);
    std::size_t pairs = 0;
    for (detail::SetId outer = 0; outer < family->size(); ++outer) {
      for (detail::SetId inner = 0; inner < outer; ++inner) pairs += family->subset(inner, outer) ? 1 : 0;
    }
    EXPECT_EQ(pairs, network.pairs);
  }
}

std::int64_t smallest_budget(const char* network, const char* planner) {
  const Solution found =
      solve(papers_graph(network), {.planner = planner, .judge = Judge::kFormula, .objective = Objective::kMinCache});
  EXPECT_TRUE(found.found());
  return found.budget_bytes;
}

TEST(PapersTest, SmallestBudgetsAreKnownToTheByte) {
  for (const Network& network : kNetworks) {
    SCOPED_TRACE(network.name);
    EXPECT_EQ(smallest_budget(network.name, "lower-sets"), network.smallest_budget);
    EXPECT_EQ(smallest_budget(network.name, "lower-sets-approx"), network.smallest_approximate_budget);
  }
}

struct ChenRow {
  const char* network;
  std::size_t candidates;
  std::size_t blocks;
  std::int64_t formula_peak;  // the peak without liveness
  std::int64_t live_peak;
  std::int64_t overhead;  // includes the reruns of ops whose gradients read their own outputs
};

// The live peak of GoogLeNet differs from the authors' (576,026,624). The ops of parallel branches may run in any
// order, and our file lists them in another order than the authors' file.
constexpr ChenRow kChen[] = {
    {"pspnet", 72, 7, 3'824'259'184, 1'694'246'684, 1409},
    {"unet", 12, 2, 21'376'180'224, 7'803'387'904, 230},
    {"resnet50", 41, 6, 2'260'729'856, 1'130'364'928, 653},
    {"resnet152", 109, 11, 2'466'250'752, 1'233'125'376, 1909},
    {"vgg19", 47, 6, 2'562'713'608, 1'746'927'616, 170},
    {"densenet161", 101, 11, 3'159'883'776, 1'507'688'448, 1998},
    {"googlenet", 19, 3, 1'345'493'032, 565'166'088, 656},
};

TEST(PapersTest, ChensTableComesOutToTheByte) {
  for (const ChenRow& row : kChen) {
    SCOPED_TRACE(row.network);
    const Solution found = solve(papers_graph(row.network), {.planner = "chen", .judge = Judge::kFormula});
    ASSERT_TRUE(found.found());
    EXPECT_EQ(found.stats.lower_sets, row.candidates);
    EXPECT_EQ(found.formula->blocks, row.blocks);
    EXPECT_EQ(found.formula->peak_bytes, row.formula_peak);
    EXPECT_EQ(found.simulation.peak_bytes, row.live_peak);
    EXPECT_EQ(found.simulation.recompute_ns, row.overhead);
  }
}

}  // namespace
}  // namespace reprise::test
