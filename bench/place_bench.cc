// Addresses for plans that recompute: how time grows with the step, what it is for plans of measured steps, and how
// close the arena is to its load.
#include <benchmark/benchmark.h>

#include <string>

#include "reprise/reprise.h"
#include "solve/planner_knobs.h"
#include "synthetic.h"

namespace reprise {
namespace {

void place_plan(benchmark::State& state, const CostedGraph& step, const Plan& plan, const PlaceOptions& options) {
  Placement found;
  for (auto _ : state) benchmark::DoNotOptimize(found = place(step.graph, step.costs, plan, options));
  state.counters["ops"] = static_cast<double>(step.graph.num_ops());
  state.counters["addresses"] = static_cast<double>(found.addresses.size());
  state.counters["arena_to_load"] = static_cast<double>(found.arena_bytes) / static_cast<double>(found.load_bytes);
}

void BM_Place(benchmark::State& state) {
  const CostedGraph step = residual_step(state.range(0));
  const Solution solution = solve(step.graph, step.costs, {.planner = "chen", .knobs = knobs({.candidates = 1})});
  place_plan(state, step, solution.plan, {.alignment_bytes = 64});
}
BENCHMARK(BM_Place)->Arg(1000)->Arg(3000)->Arg(10000)->Arg(20000)->Unit(benchmark::kMillisecond);

// What `auto` finds inside a share of the memory above what is there from the start.
Plan plan_inside(const CostedGraph& step, std::int64_t percent) {
  const Plan plain = solve(step.graph, step.costs, {.planner = "none"}).plan;
  const Timeline times = timeline(step.graph, step.costs, plain);
  const std::int64_t budget = times.start_bytes + (times.total.peak_bytes - times.start_bytes) / 100 * percent;
  return solve(step.graph, step.costs, {.planner = "auto", .budget_bytes = budget}).plan;
}

void BM_PlaceMeasured(benchmark::State& state, const char* name) {
  const std::string path = std::string(REPRISE_SOURCE_DIR) + "/data/steps/" + name + ".cuda.graph.json";
  const CostedGraph step = parse_graph(read_text(path), path);
  place_plan(state, step, plan_inside(step, state.range(0)), {});
}
// The first has the most addresses of all plans of bench/arena.py, the second takes the longest.
BENCHMARK_CAPTURE(BM_PlaceMeasured, resnet152, "resnet152_48")->Arg(20)->Arg(50)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_PlaceMeasured, vit_large, "vit_large_64")->Arg(20)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_PlaceMeasured, densenet161, "densenet161_32")->Arg(20)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace reprise
