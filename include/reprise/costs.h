// What a graph costs: numbers beside its structure, as arrays indexed by op and by value. One graph may have many
// costs: for other batch sizes or machines, or as estimates beside measurements.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "reprise/graph.h"

namespace reprise {

// The way between the device's memory and the host's.
struct Link {
  std::int64_t down_bytes_per_s = 0;  // to the host
  std::int64_t up_bytes_per_s = 0;    // back to the device
  std::int64_t latency_ns = 10'000;   // of one copy
  bool both_ways = true;              // whether copies to the host and back can go on at the same time

  // How long one copy takes, rounded up; the largest number if that does not fit into 64 bits.
  [[nodiscard]] std::int64_t down_ns(std::int64_t bytes) const;
  [[nodiscard]] std::int64_t up_ns(std::int64_t bytes) const;

  friend bool operator==(const Link&, const Link&) = default;
};

struct Costs {
  // check_costs refuses totals from these limits on, so that no live set of any plan comes near the range of a 64-bit
  // integer.
  static constexpr std::int64_t kMaxTotalBytes = std::int64_t{1} << 59;
  static constexpr std::int64_t kMaxTotalTime = std::int64_t{1} << 59;

  std::vector<std::int64_t> time_ns{};          // by op: the time of one run
  std::vector<std::int64_t> workspace_bytes{};  // by op: memory needed only while it runs
  std::vector<std::int64_t> value_bytes{};      // by value
  std::optional<Link> link{};                   // none: plans cannot store and fetch

  friend bool operator==(const Costs&, const Costs&) = default;
};

struct CostedGraph {
  Graph graph;
  Costs costs;

  friend bool operator==(const CostedGraph&, const CostedGraph&) = default;
};

// Throws InputError, saying which number is wrong, unless there is one for every op and value, none is negative, the
// totals are below the limits, what overwrites a value has its size, and a link has rates above zero. Every function
// that takes costs checks them.
void check_costs(const Graph& graph, const Costs& costs);

}  // namespace reprise
