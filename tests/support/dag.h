// Small forward graphs as tests write them down: the predecessors, the time and the size of each node, in topological
// order.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "reprise/costs.h"

namespace reprise::test {

struct Dag {
  std::vector<std::vector<int>> preds{};  // ascending, smaller than the node
  std::vector<std::int64_t> time{};
  std::vector<std::int64_t> bytes{};
  std::vector<BackwardReads> reads{};  // If it is empty, it is kInputs for every node.

  [[nodiscard]] int size() const { return static_cast<int>(preds.size()); }
  [[nodiscard]] BackwardReads reads_of(int node) const { return reads.empty() ? BackwardReads::kInputs : reads[node]; }
  [[nodiscard]] std::int64_t total_time() const;
  [[nodiscard]] std::int64_t total_bytes() const;
};

[[nodiscard]] Dag dag_from_edges(const std::vector<std::pair<int, int>>& edges, std::vector<std::int64_t> time,
                                 std::vector<std::int64_t> bytes);

// Bit (w * (w - 1) / 2 + u) of `code` says whether there is an edge u -> w. All costs are 1.
[[nodiscard]] Dag dag_from_code(int nodes, std::uint32_t code);
[[nodiscard]] inline std::uint32_t num_codes(int nodes) { return 1U << (nodes * (nodes - 1) / 2); }

// A forward-only graph in which op i and value i are node i.
[[nodiscard]] CostedGraph to_graph(const Dag& dag);
[[nodiscard]] std::string to_json(const Dag& dag);

// The graph without one of its nodes, or without one of its edges.
[[nodiscard]] Dag without_node(const Dag& dag, int node);
[[nodiscard]] Dag without_edge(const Dag& dag, int from, int to);

// The same graph with its nodes in another topological order: new node i is old node order[i].
[[nodiscard]] Dag reordered(const Dag& dag, const std::vector<int>& order);

}  // namespace reprise::test
