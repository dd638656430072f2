// Forward views that are written down directly, for tests of code that works on views.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "papers/forward_view.h"

namespace reprise::test {

// Node v has the predecessors preds[v], all with smaller numbers. The nodes have no ops, so `expand` cannot be used.
inline detail::ForwardView view_of(const std::vector<std::vector<detail::NodeId>>& preds,
                                   std::vector<std::int64_t> time, std::vector<std::int64_t> bytes) {
  detail::ForwardView view{.time = std::move(time), .bytes = std::move(bytes)};
  std::vector<std::vector<detail::NodeId>> succs(preds.size());
  for (detail::NodeId v = 0; v < preds.size(); ++v) {
    view.preds.push_row(preds[v]);
    for (const detail::NodeId p : preds[v]) succs[p].push_back(v);
  }
  for (const auto& row : succs) view.succs.push_row(row);
  return view;
}

inline detail::ForwardView random_view(std::uint64_t seed, std::size_t nodes, std::uint64_t edge_percent,
                                       std::uint64_t costs = 10) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<detail::NodeId>> preds(nodes);
  std::vector<std::int64_t> time;
  std::vector<std::int64_t> bytes;
  for (detail::NodeId v = 0; v < nodes; ++v) {
    for (detail::NodeId p = 0; p < v; ++p) {
      if (random() % 100 < edge_percent) preds[v].push_back(p);
    }
    time.push_back(static_cast<std::int64_t>(random() % costs));
    bytes.push_back(static_cast<std::int64_t>(random() % costs));
  }
  return view_of(preds, std::move(time), std::move(bytes));
}

// Random blocks of nodes, each of which comes after those it depends on.
inline detail::Blocks random_blocks(std::uint64_t seed, const detail::ForwardView& view) {
  std::mt19937_64 random(seed);
  std::vector<std::uint32_t> level(view.num_nodes(), 0);
  std::vector<std::uint32_t> used;  // level -> 1 if a node has it
  for (detail::NodeId v = 0; v < view.num_nodes(); ++v) {
    for (const detail::NodeId p : view.preds[v]) level[v] = std::max(level[v], level[p]);
    level[v] += random() % 3 == 0 ? 1 : 0;
    if (level[v] >= used.size()) used.resize(level[v] + 1, 0);
    used[level[v]] = 1;
  }
  std::vector<std::uint32_t> rank(used.size(), 0);
  std::uint32_t count = 0;
  for (std::size_t i = 0; i < used.size(); ++i) {
    rank[i] = count;
    count += used[i];
  }
  for (std::uint32_t& block : level) block = rank[block];
  return {.block = level, .count = count};
}

}  // namespace reprise::test
