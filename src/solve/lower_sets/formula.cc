#include "solve/lower_sets/formula.h"

#include <algorithm>
#include <vector>

namespace reprise::detail {
namespace {

// back(L) of the set of all blocks up to `last`.
std::int64_t back_bytes(const ForwardView& view, const Blocks& blocks, std::uint32_t last) {
  const auto inside = [&](NodeId v) { return blocks.block[v] <= last; };
  std::vector<std::uint8_t> beside(view.num_nodes(), 0);
  std::int64_t bytes = 0;
  for (NodeId w = 0; w < view.num_nodes(); ++w) {
    if (inside(w) || std::ranges::none_of(view.preds[w], inside)) continue;
    bytes += view.bytes[w];
    for (const NodeId u : view.preds[w]) beside[u] = inside(u) ? 0 : 1;
  }
  for (NodeId v = 0; v < view.num_nodes(); ++v) bytes += beside[v] != 0 ? view.bytes[v] : 0;
  return bytes;
}

}  // namespace

Formula formula(const ForwardView& view, const Blocks& blocks, bool keep_last) {
  const std::vector<std::uint8_t> cached = cached_nodes(view, blocks);
  std::vector<std::int64_t> block_bytes(blocks.count, 0);
  std::vector<std::int64_t> cached_bytes(blocks.count, 0);
  Formula result{.blocks = blocks.count};
  for (NodeId v = 0; v < view.num_nodes(); ++v) {
    const std::uint32_t i = blocks.block[v];
    block_bytes[i] += view.bytes[v];
    if (cached[v] != 0) cached_bytes[i] += view.bytes[v];
    const bool kept = keep_last && i + 1 == blocks.count;
    if (cached[v] == 0 && !kept) result.overhead += view.time[v];
  }
  for (std::uint32_t i = 0; i < blocks.count; ++i) {
    const std::int64_t pass = result.cached_bytes + 2 * block_bytes[i] + back_bytes(view, blocks, i);
    result.peak_bytes = std::max(result.peak_bytes, pass);
    result.cached_bytes += cached_bytes[i];
  }
  return result;
}

}  // namespace reprise::detail
