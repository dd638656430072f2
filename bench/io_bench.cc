#include <benchmark/benchmark.h>

#include "papers_graph.h"

namespace reprise {
namespace {

void BM_ParseGraph(benchmark::State& state) {
  const std::string text = papers_text("densenet161");
  for (auto _ : state) benchmark::DoNotOptimize(parse_graph(text, "densenet161"));
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * text.size()));
}
BENCHMARK(BM_ParseGraph);

void BM_FormatGraph(benchmark::State& state) {
  const auto [graph, costs] = papers_graph("densenet161");
  for (auto _ : state) benchmark::DoNotOptimize(format_graph(graph, costs));
}
BENCHMARK(BM_FormatGraph);

}  // namespace
}  // namespace reprise
