#include "support/random_dag.h"

#include <algorithm>

namespace reprise::test {
namespace {

using Edges = std::vector<std::vector<int>>;

void chain(Edges& preds) {
  for (std::size_t v = 1; v < preds.size(); ++v) preds[v].push_back(static_cast<int>(v) - 1);
}

// A series of forks with up to three branches that join again. A branch may have no nodes, which makes it a skip
// connection.
void series_parallel(Edges& preds, Random& random) {
  const int nodes = static_cast<int>(preds.size());
  int v = 1;
  while (v < nodes) {
    const int fork = v - 1;
    std::vector<int> ends;
    for (int branch = random.between(1, 3); branch > 0 && v < nodes; --branch) {
      int end = fork;
      for (int length = random.between(0, 3); length > 0 && v < nodes; --length, ++v) {
        preds[v].push_back(end);
        end = v;
      }
      ends.push_back(end);
    }
    if (v == nodes) break;
    preds[v].insert(preds[v].end(), ends.begin(), ends.end());
    ++v;
  }
}

// A chain with skip connections between its two halves, as in a U-Net.
void unet(Edges& preds, Random& random) {
  chain(preds);
  const int nodes = static_cast<int>(preds.size());
  for (int v = 0; v < nodes / 2; ++v) {
    const int mirror = nodes - 1 - v;
    if (mirror > v + 1 && random.chance(50)) preds[mirror].push_back(v);
  }
}

void any_edges(Edges& preds, int percent, Random& random) {
  for (int w = 1; w < static_cast<int>(preds.size()); ++w) {
    for (int u = 0; u < w; ++u) {
      if (random.chance(percent)) preds[w].push_back(u);
    }
  }
}

// Each node has at most two inputs, from nearby nodes, so that several nodes are ready at the same time and there are
// several sinks.
void sparse(Edges& preds, Random& random) {
  for (int w = 1; w < static_cast<int>(preds.size()); ++w) {
    for (int i = random.between(w < 3 ? 1 : 0, 2); i > 0; --i)
      preds[w].push_back(random.between(std::max(0, w - 4), w - 1));
  }
}

void connect(Edges& preds, Shape shape, Random& random) {
  switch (shape) {
    case Shape::kChain:
      return chain(preds);
    case Shape::kSeriesParallel:
      return series_parallel(preds, random);
    case Shape::kUnet:
      return unet(preds, random);
    case Shape::kDense:
      return any_edges(preds, 60, random);
    case Shape::kSparse:
      return sparse(preds, random);
  }
}

}  // namespace

Dag random_dag(const DagOptions& options, Random& random) {
  Dag dag;
  dag.preds.resize(options.nodes);
  connect(dag.preds, options.shape, random);
  for (auto& preds : dag.preds) {
    std::ranges::sort(preds);
    preds.erase(std::unique(preds.begin(), preds.end()), preds.end());
  }
  for (int v = 0; v < options.nodes; ++v) {
    const bool heavy = random.chance(30);
    dag.time.push_back(options.nanoseconds ? 1 + random.below(heavy ? 9'000'000 : 400'000) : (heavy ? 10 : 1));
    dag.bytes.push_back(options.nanoseconds ? 4 * (1 + random.below(1 << 20)) : 1 + random.below(16));
    if (options.zeros && random.chance(20)) dag.bytes.back() = 0;
    if (options.zeros && random.chance(20)) dag.time.back() = 0;
    dag.reads.push_back(options.own_outputs ? static_cast<BackwardReads>(random.below(3)) : BackwardReads::kInputs);
  }
  return dag;
}

std::vector<int> random_topological_order(const Dag& dag, Random& random) {
  std::vector<int> missing;
  for (const auto& preds : dag.preds) missing.push_back(static_cast<int>(preds.size()));
  std::vector<int> ready;
  for (int v = 0; v < dag.size(); ++v) {
    if (missing[v] == 0) ready.push_back(v);
  }
  std::vector<int> order;
  while (!ready.empty()) {
    const auto pick =
        ready.begin() + static_cast<std::ptrdiff_t>(random.below(static_cast<std::int64_t>(ready.size())));
    const int v = *pick;
    ready.erase(pick);
    order.push_back(v);
    for (int w = v + 1; w < dag.size(); ++w) {
      if (std::ranges::find(dag.preds[w], v) != dag.preds[w].end() && --missing[w] == 0) ready.push_back(w);
    }
  }
  return order;
}

std::vector<Dag> assorted_dags(int count, int min_nodes, int max_nodes, std::uint64_t seed) {
  Random random(seed);
  std::vector<Dag> dags;
  for (int i = 0; i < count; ++i) {
    const DagOptions options{.shape = kShapes[i % 5],
                             .nodes = random.between(min_nodes, max_nodes),
                             .nanoseconds = i / 5 % 2 == 1,
                             .zeros = i / 10 % 2 == 1,
                             .own_outputs = i / 20 % 2 == 1};
    dags.push_back(random_dag(options, random));
  }
  return dags;
}

}  // namespace reprise::test
