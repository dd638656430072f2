// The core has no threads and no shared state, so users may call it from several threads, for example to plan in the
// background.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "fixtures/steps.h"
#include "reprise/io.h"
#include "reprise/simulate.h"
#include "reprise/solve.h"
#include "reprise/validate.h"
#include "threads/together.h"

namespace reprise::test {
namespace {

TEST(CoreThreads, PlanOneGraphAtOnceAsOneAfterTheOther) {
  const CostedGraph step = residual_block_step();
  const auto planners = planner_names();
  std::vector<Solution> alone;
  for (const auto planner : planners) alone.push_back(solve(step.graph, step.costs, {.planner = std::string(planner)}));

  std::vector<Solution> at_once(planners.size());
  together(static_cast<int>(planners.size()), [&](int i) {
    const auto at = static_cast<std::size_t>(i);
    at_once[at] = solve(step.graph, step.costs, {.planner = std::string(planners[at])});
  });
  for (std::size_t i = 0; i < planners.size(); ++i) {
    EXPECT_EQ(at_once[i].status, alone[i].status) << planners[i];
    EXPECT_EQ(at_once[i].plan, alone[i].plan) << planners[i];
  }
}

TEST(CoreThreads, ReadOneGraphAndPlanAtOnce) {
  const CostedGraph step = residual_block_step();
  const Plan plan = solve(step.graph, step.costs, {.planner = "none"}).plan;
  const Simulation alone = simulate(step.graph, step.costs, plan);
  const PlanFile file{.graph = "a step",
                      .ops = step.graph.num_ops(),
                      .values = step.graph.num_values(),
                      .planner = "none",
                      .budget_bytes = 0,
                      .simulation = alone,
                      .plan = plan};
  together(4, [&](int) {
    EXPECT_FALSE(validate(step.graph, plan));
    EXPECT_EQ(simulate(step.graph, step.costs, plan), alone);
    EXPECT_EQ(parse_plan(format_plan(file), "a plan"), file);
  });
}

TEST(CoreThreads, StopASearchFromOutside) {
  const CostedGraph step = residual_block_step();
  std::atomic<bool> stop = false;
  std::atomic<int> asked = 0;
  const SolveOptions options{.should_stop = [&] {
    ++asked;
    return stop.load();
  }};
  std::jthread searching([&] {
    while (!stop) (void)curve(step.graph, step.costs, options);
  });
  while (asked == 0) std::this_thread::yield();
  stop = true;
}

}  // namespace
}  // namespace reprise::test
