// The chain planners. Each call makes one plan.
//
//   chain         the least peak, where checkpoints are freed on the way, for 10^4 .. 10^7 layers; the time is
//                 linear if layers_per_s stays level as the chain grows
//   live_chain    the same for a runtime that frees every value after its last use, for 10^4 .. 10^6 layers
//   static_chain  checkpoints that stay to the end, for 1,000 layers and the three definitions of a segment's memory
//   budget_chain  the least recomputation at a budget a tenth above the least peak, for 100 layers
//   rotor         one table of 300 stages and 500 units; the budget is in percent of what it takes to save everything
#include <benchmark/benchmark.h>

#include "solve/chain/budget_chain.h"
#include "solve/chain/dynamic_chain.h"
#include "solve/chain/live_chain.h"
#include "solve/chain/rotor.h"
#include "solve/chain/static_chain.h"

namespace reprise::detail {
namespace {

// Sizes that look random and are the same on every machine.
std::vector<std::int64_t> sizes_of(std::int64_t layers) {
  std::vector<std::int64_t> sizes;
  std::uint64_t state = 1;
  for (std::int64_t k = 0; k <= layers; ++k) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    sizes.push_back(static_cast<std::int64_t>(state >> 44U));
  }
  return sizes;
}

void count_layers(benchmark::State& state, std::int64_t layers) {
  state.counters["layers"] = static_cast<double>(layers);
  state.counters["layers_per_s"] =
      benchmark::Counter(static_cast<double>(layers), benchmark::Counter::kIsIterationInvariantRate);
}

void chain(benchmark::State& state) {
  const std::vector<std::int64_t> sizes = sizes_of(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(least_peak(sizes, 2 * sizes.back()));
  count_layers(state, state.range(0));
}
BENCHMARK(chain)->RangeMultiplier(10)->Range(10'000, 10'000'000)->Unit(benchmark::kMillisecond);

void live_chain(benchmark::State& state) {
  std::vector<LiveLayer> layers;
  for (const std::int64_t bytes : sizes_of(state.range(0))) {
    layers.push_back({.bytes = bytes, .saved_bytes = bytes % 3 == 0 ? bytes / 4 : 0, .gradient_bytes = bytes});
  }
  for (auto _ : state) benchmark::DoNotOptimize(least_live_peak(layers, 1000, false));
  count_layers(state, state.range(0));
}
BENCHMARK(live_chain)->RangeMultiplier(10)->Range(10'000, 1'000'000)->Unit(benchmark::kMillisecond);

void static_chain(benchmark::State& state) {
  const std::vector<std::int64_t> sizes = sizes_of(1000);
  const auto memory = static_cast<SegmentMemory>(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(least_static_peak(sizes, memory));
  count_layers(state, 1000);
}
BENCHMARK(static_chain)->ArgName("memory")->DenseRange(0, 2)->Unit(benchmark::kMillisecond);

void budget_chain(benchmark::State& state) {
  const std::vector<std::int64_t> sizes = sizes_of(100);
  const std::vector<std::int64_t> times = sizes_of(99);
  const std::int64_t budget = least_peak(sizes, 2 * sizes.back()).peak_bytes * 11 / 10;
  bool rounded = false;
  for (auto _ : state) rounded = least_recomputation(sizes, times, 2 * sizes.back(), budget)->rounded;
  state.counters["rounded"] = rounded ? 1 : 0;
}
BENCHMARK(budget_chain)->Unit(benchmark::kMillisecond);

void rotor_table(benchmark::State& state) {
  const std::vector<std::int64_t> sizes = sizes_of(300);
  std::vector<RotorStage> stages;
  std::int64_t all_saved = 0;
  for (std::size_t k = 1; k < sizes.size(); ++k) {
    stages.push_back({.forward_ns = 1000 + sizes[k] % 4000,
                      .backward_ns = 2000 + sizes[k] % 8000,
                      .output_bytes = sizes[k],
                      .saved_bytes = 3 * sizes[k],
                      .gradient_bytes = sizes[k],
                      .backward_overhead_bytes = sizes[k - 1]});
    all_saved += 3 * sizes[k];
  }
  const std::int64_t memory_bytes = all_saved * state.range(0) / 100;
  for (auto _ : state) benchmark::DoNotOptimize(rotor(stages, sizes[0], memory_bytes));
}
BENCHMARK(rotor_table)->Name("rotor")->ArgName("percent")->Arg(20)->Arg(50)->Arg(100)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace reprise::detail
