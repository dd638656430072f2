// The simulator: nanoseconds per step of a plan that recomputes.
#include <benchmark/benchmark.h>

#include "reprise/reprise.h"
#include "synthetic.h"

namespace reprise {
namespace {

void BM_Simulate(benchmark::State& state) {
  const auto [graph, costs] = residual_step(state.range(0));
  const Solution solution = solve(graph, costs, {.planner = "chen", .candidates = 1});
  Simulator simulator(graph, costs);
  for (auto _ : state) benchmark::DoNotOptimize(simulator.run(solution.plan));
  const auto steps = static_cast<double>(solution.plan.steps.size());
  state.counters["plan_steps"] = steps;
  state.counters["seconds_per_step"] =
      benchmark::Counter(steps, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_Simulate)->Arg(1000)->Arg(3000)->Arg(10000)->Arg(30000);

}  // namespace
}  // namespace reprise
