// Seven small graphs with known numbers: all their sequences were worked out independently of this project.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/dag.h"

namespace reprise::test {

// A sequence: the nodes of each of its lower sets, without V at the end.
using Cuts = std::vector<std::vector<int>>;

struct KnownSequence {
  Cuts cuts{};
  std::int64_t overhead = 0;
  std::vector<std::int64_t> passes{};
  std::int64_t cached = 0;
  std::int64_t live_peak = 0;
};

// Pairs of a budget and the value that holds from this budget up to the next one.
using Staircase = std::vector<std::pair<std::int64_t, std::int64_t>>;

struct KnownFamily {
  std::size_t lower_sets = 0;
  std::size_t sequences = 0;
  std::int64_t smallest_budget = 0;
  Staircase least_overhead{};
  Staircase most_overhead{};
};

struct KnownLeastCache {
  std::int64_t budget = 0;
  std::int64_t cached = 0;
  std::int64_t overhead = 0;
};

struct Known {
  std::string name{};
  Dag dag{};
  KnownFamily all{};
  KnownFamily ancestors{};
  std::vector<KnownLeastCache> least_cache{};  // over all lower sets
  std::vector<KnownSequence> sequences{};
};

[[nodiscard]] Known chain_of_three();             // H, with all of its four sequences
[[nodiscard]] std::vector<Known> known_graphs();  // G1 .. G6

}  // namespace reprise::test
