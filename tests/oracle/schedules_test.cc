// Compares the planners with all schedules of every graph of up to four nodes. A planner may be worse than the best
// schedule, since it does not try all of them, but never better.
#include "oracle/schedules.h"

#include <gtest/gtest.h>

#include "oracle/vectors.h"
#include "reprise/papers.h"
#include "reprise/solve.h"
#include "solve/planner_knobs.h"
#include "support/costed.h"

namespace reprise::test {
namespace {

TEST(SchedulesTest, SmallestPeakOfAChainIsThatOfItsLastGradient) {
  // The sizes are 1, 2 and 4. The gradient of c (4), b (2) and the gradient of b (2) are needed at the same time; a is
  // computed again later.
  const auto [step, costs] = complete_backward(to_graph(chain_of_three().dag));
  EXPECT_EQ(smallest_peak(step, costs), 8);
}

TEST(SchedulesTest, LeastTimeOfAChainPaysForWhatComesBack) {
  // The times are 1, 2 and 3. c itself is never read, so a time of 3 is enough if there is room for a; otherwise a runs
  // twice.
  const auto [step, costs] = complete_backward(to_graph(chain_of_three().dag));
  EXPECT_EQ(least_time(step, costs, 9), 3);
  EXPECT_EQ(least_time(step, costs, 8), 4);
  EXPECT_EQ(least_time(step, costs, 7), std::nullopt);
}

void expect_not_better(const Dag& dag) {
  const CostedGraph graph = to_graph(dag);
  const auto [step, costs] = complete_backward(graph);
  const std::int64_t smallest = smallest_peak(step, costs);
  for (const std::string_view planner : planner_names()) {
    SCOPED_TRACE(std::string(planner) + '\n' + to_json(dag));
    for (const Solution& point :
         curve(graph, {.planner = std::string(planner), .knobs = knobs({.candidates = 12})}).points) {
      EXPECT_GE(point.simulation.peak_bytes, smallest);
      EXPECT_GE(point.simulation.time_ns, least_time(step, costs, point.simulation.peak_bytes).value());
    }
  }
}

TEST(SchedulesTest, NoPlannerBeatsThemUpToFourNodes) {
  for (int nodes = 1; nodes <= 4; ++nodes) {
    for (std::uint32_t code = 0; code < num_codes(nodes); ++code) {
      Dag dag = dag_from_code(nodes, code);
      expect_not_better(dag);
      for (int v = 0; v < nodes; ++v) {
        dag.time[v] = 1 + 3 * v % 5;
        dag.bytes[v] = 1 + 5 * v % 7;
        dag.reads.push_back(static_cast<BackwardReads>(code % 3));
      }
      expect_not_better(dag);
    }
  }
}

}  // namespace
}  // namespace reprise::test
