// Planner `auto` on the captured steps of data/steps: no worse than it has been, and near its bound.
#include <gtest/gtest.h>

#include <array>
#include <span>
#include <string>

#include "reprise/reprise.h"

namespace reprise::test {
namespace {

struct Expected {
  const char* step;
  std::array<double, 3> percent;  // recomputed at 80, 50 and 30 % of the memory, of the step's time; 0: no plan
  double least_gib;
  bool captured_order;  // good plans do not need another order of backward
};

// What was reached with this work, rounded up.
constexpr std::size_t kWork = 60'000'000;
constexpr std::array kSteps{
    Expected{"vgg19_64", {0.85, 5.60, 0}, 2.55, false},
    Expected{"unet_8x572", {1.70, 10.2, 0}, 2.42, false},
    Expected{"resnet50_96", {2.09, 8.95, 17.3}, 1.60, true},
    Expected{"resnet152_48", {2.08, 8.68, 17.4}, 1.12, true},
    Expected{"gpt2_medium_8x1024", {1.95, 8.90, 18.8}, 4.80, true},
    Expected{"densenet161_32", {3.41, 11.2, 17.9}, 0.76, true},
};

// In sanitizer builds the two small ones.
std::span<const Expected> steps() {
#ifdef REPRISE_SMALL_TESTS
  return std::span(kSteps).first(2);
#else
  return kSteps;
#endif
}

struct Captured {
  Graph graph;
  std::int64_t start_bytes = 0;
  Simulation plain;

  explicit Captured(const std::string& step)
      : graph(parse_graph(read_text(std::string(REPRISE_SOURCE_DIR) + "/data/steps/" + step + ".graph.json"), step)) {
    const Plan plan = solve(graph, {.planner = "none"}).plan;
    start_bytes = timeline(graph, plan).start_bytes;
    plain = simulate(graph, plan);
  }
  [[nodiscard]] Solution at(int share) const {
    const std::int64_t budget = start_bytes + (plain.peak_bytes - start_bytes) * share / 100;
    return solve(graph, {.budget_bytes = budget, .work = kWork, .bound_work = 5'000'000});
  }
  [[nodiscard]] double percent(std::int64_t time_ns) const {
    return 100 * static_cast<double>(time_ns) / static_cast<double>(plain.time_ns);
  }
};

TEST(CapturedStepsTest, AutoIsNoWorseThanItHasBeen) {
  for (const Expected& expected : steps()) {
    SCOPED_TRACE(expected.step);
    const Captured step(expected.step);
    for (std::size_t i = 0; i < expected.percent.size(); ++i) {
      const int share = std::array{80, 50, 30}[i];
      if (expected.percent[i] == 0) continue;
      const Solution found = step.at(share);
      ASSERT_TRUE(found.found()) << found.message;
      EXPECT_LE(step.percent(found.simulation.recompute_ns), expected.percent[i]) << share << " %";
      if (!expected.captured_order || share < 50) continue;
      EXPECT_LE(step.percent(found.simulation.time_ns - *found.lower_bound_ns), 1.5)
          << share << " %: far from the bound";
    }
  }
}

TEST(CapturedStepsTest, LeastPeaksAreNoHigherThanTheyHaveBeen) {
  for (const Expected& expected : steps()) {
    const Captured step(expected.step);
    const Solution least = solve(step.graph, {.work = kWork, .techniques = {.bound = false}});
    EXPECT_LE(static_cast<double>(least.simulation.peak_bytes - step.start_bytes) * 0x1p-30, expected.least_gib)
        << expected.step;
  }
}

TEST(CapturedStepsTest, ALegalPlanComesWithLittleWork) {
  for (const Expected& expected : steps()) {
    const Captured step(expected.step);
    const std::int64_t budget = step.start_bytes + (step.plain.peak_bytes - step.start_bytes) * 7 / 10;
    const Solution found =
        solve(step.graph, {.budget_bytes = budget, .work = 4'000'000, .techniques = {.bound = false}});
    EXPECT_TRUE(found.found()) << expected.step;
  }
}

}  // namespace
}  // namespace reprise::test
