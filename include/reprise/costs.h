// What a graph costs: numbers beside its structure, as arrays indexed by op and by value. One graph may have many
// costs: for other batch sizes or machines, or as estimates beside measurements.
#pragma once

#include <cstdint>
#include <vector>

#include "reprise/graph.h"

namespace reprise {

struct Costs {
  // check_costs refuses totals from these limits on, so that no live set of any plan comes near the range of a 64-bit
  // integer.
  static constexpr std::int64_t kMaxTotalBytes = std::int64_t{1} << 59;
  static constexpr std::int64_t kMaxTotalTime = std::int64_t{1} << 59;

  std::vector<std::int64_t> time_ns{};          // by op: the time of one run
  std::vector<std::int64_t> workspace_bytes{};  // by op: memory needed only while it runs
  std::vector<std::int64_t> value_bytes{};      // by value

  friend bool operator==(const Costs&, const Costs&) = default;
};

struct CostedGraph {
  Graph graph;
  Costs costs;

  friend bool operator==(const CostedGraph&, const CostedGraph&) = default;
};

// Throws InputError, saying which number is wrong, unless there is one for every op and value, none is negative, the
// totals are below the limits, and what overwrites a value has its size. Every function that takes costs checks them.
void check_costs(const Graph& graph, const Costs& costs);

}  // namespace reprise
