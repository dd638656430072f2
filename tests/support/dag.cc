#include "support/dag.h"

#include <algorithm>
#include <numeric>

#include "reprise/graph_builder.h"
#include "reprise/io.h"

namespace reprise::test {

std::int64_t Dag::total_time() const { return std::accumulate(time.begin(), time.end(), std::int64_t{0}); }
std::int64_t Dag::total_bytes() const { return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}); }

Dag dag_from_edges(const std::vector<std::pair<int, int>>& edges, std::vector<std::int64_t> time,
                   std::vector<std::int64_t> bytes) {
  Dag dag{.preds = std::vector<std::vector<int>>(time.size()), .time = std::move(time), .bytes = std::move(bytes)};
  for (const auto& [from, to] : edges) dag.preds[to].push_back(from);
  for (auto& preds : dag.preds) std::ranges::sort(preds);
  return dag;
}

Dag dag_from_code(int nodes, std::uint32_t code) {
  Dag dag;
  dag.preds.resize(nodes);
  dag.time.assign(nodes, 1);
  dag.bytes.assign(nodes, 1);
  for (int w = 0; w < nodes; ++w) {
    for (int u = 0; u < w; ++u, code >>= 1) {
      if ((code & 1U) != 0) dag.preds[w].push_back(u);
    }
  }
  return dag;
}

CostedGraph to_graph(const Dag& dag) {
  GraphBuilder builder("dag");
  for (int v = 0; v < dag.size(); ++v) {
    OpSpec op{.name = "n" + std::to_string(v), .time_ns = dag.time[v], .backward_reads = dag.reads_of(v)};
    for (const int p : dag.preds[v]) op.inputs.push_back(value_id(static_cast<std::size_t>(p)));
    op.outputs = {builder.value(dag.bytes[v])};
    builder.op(std::move(op));
  }
  return builder.build();
}

std::string to_json(const Dag& dag) {
  const auto [graph, costs] = to_graph(dag);
  return format_graph(graph, costs);
}

Dag without_node(const Dag& dag, int node) {
  std::vector<int> order;
  for (int v = 0; v < dag.size(); ++v) {
    if (v != node) order.push_back(v);
  }
  return reordered(dag, order);
}

Dag without_edge(const Dag& dag, int from, int to) {
  Dag smaller = dag;
  std::erase(smaller.preds[to], from);
  return smaller;
}

Dag reordered(const Dag& dag, const std::vector<int>& order) {
  std::vector<int> place(dag.preds.size(), -1);
  for (std::size_t i = 0; i < order.size(); ++i) place[order[i]] = static_cast<int>(i);
  Dag result;
  for (const int old : order) {
    std::vector<int> preds;
    for (const int p : dag.preds[old]) {
      if (place[p] >= 0) preds.push_back(place[p]);
    }
    std::ranges::sort(preds);
    result.preds.push_back(std::move(preds));
    result.time.push_back(dag.time[old]);
    result.bytes.push_back(dag.bytes[old]);
    if (!dag.reads.empty()) result.reads.push_back(dag.reads[old]);
  }
  return result;
}

}  // namespace reprise::test
