// What a graph costs: numbers beside its structure, as arrays indexed by op and by value. One graph may have many: of
// other batch sizes, machines, estimates beside measurements.
#pragma once

#include <cstdint>
#include <vector>

#include "reprise/graph.h"

namespace reprise {

struct Costs {
  // No live set of any plan can come near the range of a 64-bit integer: check_costs refuses totals from these on.
  static constexpr std::int64_t kMaxTotalBytes = std::int64_t{1} << 59;
  static constexpr std::int64_t kMaxTotalTime = std::int64_t{1} << 59;

  std::vector<std::int64_t> time_ns{};          // by op: of one run
  std::vector<std::int64_t> workspace_bytes{};  // by op: needed only while it runs
  std::vector<std::int64_t> value_bytes{};      // by value

  friend bool operator==(const Costs&, const Costs&) = default;
};

struct CostedGraph {
  Graph graph;
  Costs costs;

  friend bool operator==(const CostedGraph&, const CostedGraph&) = default;
};

// Throws InputError, saying which number is wrong, unless there is one for every op and value, none is negative, the
// totals are below the limits, and what overwrites a value has its size. Whoever takes costs checks them.
void check_costs(const Graph& graph, const Costs& costs);

}  // namespace reprise
