#include <benchmark/benchmark.h>

#include "papers_graph.h"
#include "reprise/reprise.h"

namespace reprise {
namespace {

void BM_Simulate(benchmark::State& state, const char* network) {
  const Graph graph = papers_graph(network);
  const Graph step = complete_backward(graph);
  const Plan plan = solve(graph, {.planner = "none"}).plan;
  Simulator simulator(step);
  for (auto _ : state) benchmark::DoNotOptimize(simulator.run(plan));
  state.counters["steps"] = static_cast<double>(plan.steps.size());
}
BENCHMARK_CAPTURE(BM_Simulate, vgg19, "vgg19");
BENCHMARK_CAPTURE(BM_Simulate, densenet161, "densenet161");

}  // namespace
}  // namespace reprise
