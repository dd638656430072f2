// Whole planners on the papers' networks: the smallest feasible budget, by the simulator.
#include <benchmark/benchmark.h>

#include "papers_graph.h"
#include "reprise/reprise.h"

namespace reprise {
namespace {

void BM_Solve(benchmark::State& state, const char* network, const char* planner) {
  const Graph graph = papers_graph(network);
  Solution solution;
  for (auto _ : state) benchmark::DoNotOptimize(solution = solve(graph, {.planner = planner}));
  if (!solution.found()) state.SkipWithError(solution.message.c_str());
  state.counters["peak_bytes"] = static_cast<double>(solution.simulation.peak_bytes);
  state.counters["lower_sets"] = static_cast<double>(solution.stats.lower_sets);
}

#define REPRISE_BENCH_SOLVE(network)                                                            \
  BENCHMARK_CAPTURE(BM_Solve, network##_chen, #network, "chen")->Unit(benchmark::kMillisecond); \
  BENCHMARK_CAPTURE(BM_Solve, network##_lower_sets_approx, #network, "lower-sets-approx")->Unit(benchmark::kMillisecond)
REPRISE_BENCH_SOLVE(vgg19);
REPRISE_BENCH_SOLVE(unet);
REPRISE_BENCH_SOLVE(resnet50);
REPRISE_BENCH_SOLVE(resnet152);

}  // namespace
}  // namespace reprise
