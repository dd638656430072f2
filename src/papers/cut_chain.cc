#include "papers/cut_chain.h"

#include <algorithm>
#include <bit>

namespace reprise::detail {
namespace {

// Rows of bits: each node with its ancestors.
class Ancestors {
 public:
  explicit Ancestors(const ForwardView& view)
      : nodes_(view.num_nodes()), words_((nodes_ + 63) / 64), bits_(nodes_ * words_, 0) {
    for (NodeId v = 0; v < nodes_; ++v) {
      for (const NodeId p : view.preds[v]) {
        for (std::size_t word = 0; word <= p / 64; ++word) bits_[v * words_ + word] |= bits_[p * words_ + word];
      }
      bits_[v * words_ + v / 64] |= std::uint64_t{1} << (v % 64);
    }
  }

  [[nodiscard]] bool contains(NodeId v, NodeId ancestor) const {
    return (bits_[v * words_ + ancestor / 64] >> (ancestor % 64) & 1U) != 0;
  }

  template <typename Visit>
  void for_each(NodeId v, const Visit& visit) const {
    for (std::size_t word = 0; word <= v / 64; ++word) {
      for (std::uint64_t rest = bits_[v * words_ + word]; rest != 0; rest &= rest - 1) {
        visit(static_cast<NodeId>(64 * word + static_cast<std::size_t>(std::countr_zero(rest))));
      }
    }
  }

 private:
  std::size_t nodes_;
  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

// All edges into a lower set begin inside it. So the number of edges that leave it is the number that begin in it less
// the number that end in it. All of them are v's own exactly when that number is the number of v's edges.
bool is_cut(const ForwardView& view, const Ancestors& ancestors, NodeId v) {
  const auto own = static_cast<std::int64_t>(view.succs[v].size());
  std::int64_t leaving = 0;
  ancestors.for_each(v, [&](NodeId a) {
    leaving += static_cast<std::int64_t>(view.succs[a].size()) - static_cast<std::int64_t>(view.preds[a].size());
  });
  return own > 0 && leaving == own;
}

}  // namespace

CutChain cut_chain(const ForwardView& view) {
  const Ancestors ancestors(view);
  CutChain chain;
  constexpr std::uint32_t kNone = 0xFFFFFFFFU;
  chain.stage.assign(view.num_nodes(), kNone);
  for (NodeId v = 0; v < view.num_nodes(); ++v) {
    // The node does not follow the cut before only if there are several sinks or sources.
    const bool follows = chain.cuts.empty() || ancestors.contains(v, chain.cuts.back());
    if (!follows || !is_cut(view, ancestors, v)) continue;
    const auto stage = static_cast<std::uint32_t>(chain.cuts.size());
    ancestors.for_each(v, [&](NodeId a) { chain.stage[a] = std::min(chain.stage[a], stage); });
    chain.cuts.push_back(v);
    chain.cut_bytes.push_back(view.bytes[v]);
  }
  const auto last = static_cast<std::uint32_t>(chain.cuts.size());
  const std::size_t stages = view.num_nodes() == 0 ? 0 : last + 1;
  chain.bytes.assign(stages, 0);
  chain.time.assign(stages, 0);
  chain.cut_bytes.resize(stages, 0);
  for (NodeId v = 0; v < view.num_nodes(); ++v) {
    std::uint32_t& stage = chain.stage[v];
    stage = std::min(stage, last);
    chain.bytes[stage] += view.bytes[v];
    chain.time[stage] += view.time[v];
    if (stage == last && view.succs[v].empty()) chain.cut_bytes[last] += view.bytes[v];
  }
  return chain;
}

Blocks CutChain::blocks(std::span<const std::uint32_t> ends) const {
  std::vector<std::uint32_t> block_of_stage(num_stages(), 0);
  std::uint32_t block = 0;
  std::size_t next = 0;
  for (std::uint32_t s = 0; s < num_stages(); ++s) {
    block_of_stage[s] = block;
    if (next < ends.size() && ends[next] == s) {
      ++block;
      ++next;
    }
  }
  Blocks result{.block = {}, .count = num_stages() == 0 ? 0 : block_of_stage.back() + 1};
  for (const std::uint32_t s : stage) result.block.push_back(block_of_stage[s]);
  return result;
}

}  // namespace reprise::detail
