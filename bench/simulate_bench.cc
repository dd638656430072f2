// The simulator: how many nanoseconds it takes per action of a plan that recomputes.
#include <benchmark/benchmark.h>

#include "reprise/reprise.h"
#include "simulate/simulator.h"
#include "solve/planner_knobs.h"
#include "synthetic.h"

namespace reprise {
namespace {

void BM_Simulate(benchmark::State& state) {
  const auto [graph, costs] = residual_step(state.range(0));
  const Solution solution = solve(graph, costs, {.planner = "chen", .knobs = knobs({.candidates = 1})});
  detail::Simulator simulator(graph, costs);
  for (auto _ : state) benchmark::DoNotOptimize(simulator.run(solution.plan));
  const auto actions = static_cast<double>(solution.plan.actions.size());
  state.counters["plan_actions"] = actions;
  state.counters["seconds_per_action"] =
      benchmark::Counter(actions, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_Simulate)->Arg(1000)->Arg(3000)->Arg(10000)->Arg(30000);

}  // namespace
}  // namespace reprise
