// The papers' view of a training step: nodes and edges with times and bytes (V, E, T, M).
//
// Every forward op that may be repeated becomes a node; its outputs are one tensor to the papers. An op that overwrites
// what the op before it made joins that op's node when nothing else reads it: conv -> bn -> relu_ is conv, {bn, relu_}.
// `once` ops are not nodes: what they make is never recomputed. Nodes are numbered in topological order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/csr.h"
#include "reprise/costs.h"
#include "reprise/graph.h"

namespace reprise::detail {

using NodeId = std::uint32_t;
inline constexpr NodeId kNoNode = 0xFFFFFFFFU;

struct ForwardView {
  std::vector<std::int64_t> time;   // T
  std::vector<std::int64_t> bytes;  // M
  Csr<NodeId> preds;                // distinct, ascending
  Csr<NodeId> succs;                // distinct, ascending
  Csr<OpId> ops;                    // of each node, in execution order
  std::vector<NodeId> node_of_op;   // kNoNode: once, caller's and backward ops

  [[nodiscard]] std::size_t num_nodes() const { return time.size(); }
  [[nodiscard]] std::int64_t total_time() const;
  [[nodiscard]] std::int64_t total_bytes() const;
};

[[nodiscard]] ForwardView forward_view(const Graph& graph, const Costs& costs);

// A sequence of lower sets as the papers' planners return it: node v is in block block[v], 0 <= block[v] < count, and
// no edge leads to an earlier block.
struct Blocks {
  std::vector<std::uint32_t> block;
  std::uint32_t count = 0;
};

// Nodes with a successor in a later block: their values are cached from forward to backward.
[[nodiscard]] std::vector<std::uint8_t> cached_nodes(const ForwardView& view, const Blocks& blocks);

}  // namespace reprise::detail
