// Families of lower sets: sets of nodes closed under predecessors, between which the papers cut.
//
// Stored flat and sorted by cardinality, so that a subset always comes before its supersets (the released program of
// the paper lists them in discovery order and loses transitions). A family holds the empty set first and V last.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "graph/csr.h"
#include "papers/forward_view.h"

namespace reprise::detail {

using SetId = std::uint32_t;

class LowerSetFamily {
 public:
  [[nodiscard]] static std::size_t words_for(std::size_t nodes) { return nodes == 0 ? 1 : (nodes + 63) / 64; }
  // `sets` are rows of words_for(nodes) 64-bit words, sorted by cardinality, without repetitions.
  LowerSetFamily(const ForwardView& view, std::vector<std::uint64_t> sets);

  // The same sets for a view that differs only in its times.
  [[nodiscard]] LowerSetFamily with_times_of(const ForwardView& view) const;

  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  [[nodiscard]] SetId whole() const { return static_cast<SetId>(size() - 1); }
  [[nodiscard]] bool subset(SetId inner, SetId outer) const;
  [[nodiscard]] bool contains(SetId set, NodeId node) const {
    return (sets_[set * words_ + node / 64] >> (node % 64) & 1U) != 0;
  }
  [[nodiscard]] std::size_t count(SetId set) const { return count_[set]; }             // |L|
  [[nodiscard]] std::int64_t bytes(SetId set) const { return bytes_[set]; }            // M(L)
  [[nodiscard]] std::int64_t time(SetId set) const { return time_[set]; }              // T(L)
  [[nodiscard]] std::int64_t back_bytes(SetId set) const { return back_bytes_[set]; }  // back(L), see formula.h
  // Nodes of the set with a successor outside it, ascending.
  [[nodiscard]] std::span<const NodeId> boundary(SetId set) const { return boundary_[set]; }
  // Nodes outside the set whose predecessors are all inside. Another lower set is not a subset of this one exactly when
  // it contains one of them.
  [[nodiscard]] std::span<const NodeId> next_nodes(SetId set) const { return next_nodes_[set]; }

  // The blocks between the sets of a sequence L_1 < .. < L_k = V.
  [[nodiscard]] Blocks blocks(std::span<const SetId> sequence) const;

 private:
  void describe(const ForwardView& view, SetId set);

  std::size_t words_;
  std::vector<std::uint64_t> sets_;
  std::vector<std::size_t> count_;
  std::vector<std::int64_t> bytes_;
  std::vector<std::int64_t> time_;
  std::vector<std::int64_t> back_bytes_;
  Csr<NodeId> boundary_;
  Csr<NodeId> next_nodes_;
};

// All lower sets, or nothing if there are more than `limit`.
[[nodiscard]] std::optional<LowerSetFamily> all_lower_sets(const ForwardView& view, std::size_t limit);

// The empty set, every node with its ancestors, and V: about as many sets as nodes.
[[nodiscard]] LowerSetFamily ancestor_sets(const ForwardView& view);

}  // namespace reprise::detail
