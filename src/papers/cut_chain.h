// Where a forward view can be cut at a single node, and the chain of stages between such cuts.
//
// A node is a cut when it alone carries everything from its ancestors onwards: no ancestor feeds anything outside. In
// a -> {b, c} -> d -> e, with e the end: a, d and e are cuts, the stages a | b c d | e. A network of blocks is a chain
// at this level, and the chain planners work at this level. U-Net, and DenseNet within a dense block, have few cuts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "papers/forward_view.h"

namespace reprise::detail {

struct CutChain {
  std::vector<NodeId> cuts;             // in order, the ends of all stages but the last
  std::vector<std::uint32_t> stage;     // of a node, 0 .. num_stages() - 1; no edge leads to an earlier one
  std::vector<std::int64_t> bytes;      // M of a stage's nodes
  std::vector<std::int64_t> time;       // T of a stage's nodes
  std::vector<std::int64_t> cut_bytes;  // M of the node that ends a stage; of the sinks, for the last

  [[nodiscard]] std::size_t num_stages() const { return bytes.size(); }
  // The blocks that end at the stages in `ends`, which are ascending indices; the last stage is added if it is missing.
  [[nodiscard]] Blocks blocks(std::span<const std::uint32_t> ends) const;
};

// O(V * V / 64 + ancestors), so about a second for 50,000 nodes.
[[nodiscard]] CutChain cut_chain(const ForwardView& view);

}  // namespace reprise::detail
