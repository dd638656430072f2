// The lower-set planners. Each call is one search, and the budget is compared with the formula, except in `curve`.
//
//   approximate  the least overhead at a budget in percent of the smallest one, on the seven networks
//   smallest     the smallest feasible budget to the byte, and the sequence that caches least, over all lower sets
//   exact        the least overhead at a budget in percent of the smallest one, over all lower sets
//   growth       how the time grows: with nodes for the approximate planner, with lower sets for the exact one
//   curve        all budgets at once, judged by the simulator
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <map>
#include <string>

#include "papers_graph.h"
#include "reprise/reprise.h"
#include "synthetic.h"

namespace reprise {
namespace {

const std::vector<std::string> kNetworks = {"vgg19",       "unet",   "resnet50", "resnet152",
                                            "densenet161", "pspnet", "googlenet"};

double max_resident_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024.0;
}

Solution smallest(const CostedGraph& step, const char* planner) {
  return solve(step.graph, step.costs,
               {.planner = planner, .judge = Judge::kFormula, .objective = Objective::kMinCache});
}

void report(benchmark::State& state, const Solution& solution) {
  if (!solution.found()) state.SkipWithError(solution.message.c_str());
  state.counters["nodes"] = static_cast<double>(solution.stats.nodes);
  state.counters["lower_sets"] = static_cast<double>(solution.stats.lower_sets);
  state.counters["overhead"] = static_cast<double>(solution.formula->overhead);
  state.counters["max_resident_mib"] = max_resident_mib();
}

void least_overhead(benchmark::State& state, const CostedGraph& step, const char* planner, std::int64_t percent) {
  const std::int64_t budget = smallest(step, planner).budget_bytes * percent / 100;
  Solution solution;
  for (auto _ : state) {
    solution = solve(step.graph, step.costs, {.planner = planner, .budget_bytes = budget, .judge = Judge::kFormula});
  }
  report(state, solution);
}

void register_networks() {
  for (const std::string& network : kNetworks) {
    for (const std::int64_t percent : {100, 125, 150, 200, 250, 300, 400, 600}) {
      const std::string at = "/" + network + "/" + std::to_string(percent);
      benchmark::RegisterBenchmark(("approximate" + at).c_str(), [=](benchmark::State& state) {
        least_overhead(state, papers_graph(network), "lower-sets-approx", percent);
      })->Unit(benchmark::kMillisecond);
      benchmark::RegisterBenchmark(("exact" + at).c_str(), [=](benchmark::State& state) {
        least_overhead(state, papers_graph(network), "lower-sets", percent);
      })->Unit(benchmark::kMillisecond);
    }
    benchmark::RegisterBenchmark(("smallest/" + network).c_str(), [=](benchmark::State& state) {
      const CostedGraph step = papers_graph(network);
      Solution solution;
      for (auto _ : state) solution = smallest(step, "lower-sets");
      report(state, solution);
    })->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark(("curve/" + network).c_str(), [=](benchmark::State& state) {
      const auto [graph, costs] = papers_graph(network);
      for (auto _ : state) benchmark::DoNotOptimize(curve(graph, costs, {.planner = "lower-sets-approx"}));
    })->Unit(benchmark::kMillisecond);
  }
}

void register_growth() {
  for (const std::int64_t nodes : {250, 500, 1000, 2000, 4000}) {
    benchmark::RegisterBenchmark(("growth/nodes/" + std::to_string(nodes)).c_str(), [=](benchmark::State& state) {
      least_overhead(state, parallel_chains(1, nodes), "lower-sets-approx", 200);
    })->Unit(benchmark::kMillisecond);
  }
  for (const std::int64_t length : {4, 6, 8, 10, 12}) {
    benchmark::RegisterBenchmark(("growth/lower_sets/" + std::to_string(length)).c_str(), [=](benchmark::State& state) {
      least_overhead(state, parallel_chains(4, length), "lower-sets", 200);
    })->Unit(benchmark::kMillisecond);
  }
}

const bool kRegistered = [] {
  register_networks();
  register_growth();
  return true;
}();

}  // namespace
}  // namespace reprise
