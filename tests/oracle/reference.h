// The papers' model straight from its definitions, with std::set and without optimisation. It shares no code with src/.
//
// For a forward graph with nodes V, where succ(S) and pred(S) are the direct successors and predecessors of a set S:
//
//   lower set L      pred(L) is inside L
//   boundary(L)      nodes of L with a successor outside L
//   sequence         {} < L_1 < ... < L_k = V, blocks V_i = L_i - L_{i-1}
//   cached           U_i = boundary(L_1) + ... + boundary(L_i)
//   overhead         sum of T(V_i - boundary(L_i))
//   block pass i     M(U_{i-1}) + 2 M(V_i) + M(succ(L_i) - L_i) + M(pred(succ(L_i)) - L_i)
//
// Kusumoto et al., "A graph theoretic framework of recomputation algorithms for memory-efficient backpropagation",
// NeurIPS 2019.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "support/dag.h"

namespace reprise::test {

using NodeSet = std::set<int>;
using Sequence = std::vector<NodeSet>;  // L_1 .. L_k; empty for the graph without nodes

[[nodiscard]] NodeSet all_nodes(const Dag& dag);
[[nodiscard]] NodeSet successors(const Dag& dag, const NodeSet& nodes);
[[nodiscard]] NodeSet predecessors(const Dag& dag, const NodeSet& nodes);
[[nodiscard]] NodeSet boundary(const Dag& dag, const NodeSet& lower_set);
[[nodiscard]] NodeSet minus(const NodeSet& a, const NodeSet& b);
[[nodiscard]] NodeSet plus(const NodeSet& a, const NodeSet& b);
[[nodiscard]] std::int64_t time_of(const Dag& dag, const NodeSet& nodes);
[[nodiscard]] std::int64_t bytes_of(const Dag& dag, const NodeSet& nodes);

// Every subset of V that is a lower set, including {} and V.
[[nodiscard]] std::vector<NodeSet> every_lower_set(const Dag& dag);
// {}, V, and each node with its ancestors.
[[nodiscard]] std::vector<NodeSet> ancestor_family(const Dag& dag);

void for_each_sequence(const Dag& dag, const std::vector<NodeSet>& family,
                       const std::function<void(const Sequence&)>& visit);

struct Cost {
  std::int64_t overhead = 0;
  std::int64_t last_block_time = 0;  // the part of the overhead that is saved by keeping the last block
  std::int64_t cached = 0;           // M(U_k)
  std::vector<std::int64_t> passes{};

  [[nodiscard]] std::int64_t peak() const;
};
[[nodiscard]] Cost cost_of(const Dag& dag, const Sequence& sequence);

}  // namespace reprise::test
