// Addresses for a plan that recomputes: how time grows with the step, and how close the arena is to its load.
#include <benchmark/benchmark.h>

#include "reprise/reprise.h"
#include "solve/planner_knobs.h"
#include "synthetic.h"

namespace reprise {
namespace {

void BM_Place(benchmark::State& state) {
  const auto [graph, costs] = residual_step(state.range(0));
  const Solution solution = solve(graph, costs, {.planner = "chen", .knobs = knobs({.candidates = 1})});
  Placement found;
  for (auto _ : state) benchmark::DoNotOptimize(found = place(graph, costs, solution.plan, {.alignment_bytes = 64}));
  state.counters["addresses"] = static_cast<double>(found.addresses.size());
  state.counters["arena_to_load"] = static_cast<double>(found.arena_bytes) / static_cast<double>(found.load_bytes);
}
BENCHMARK(BM_Place)->Arg(1000)->Arg(3000)->Arg(10000)->Arg(20000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace reprise
