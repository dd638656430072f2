// Chains of calls that one cut runs through, forward and backward.
//
// A chain is a set of calls, each of which can be cut into the same number of units (rules.h), connected by large
// values that are cut too. Values that only the chain reads lie *inside*: in a sliced program they exist slice by
// slice. All others that it makes are its *ends*, which are needed whole. A call that has nothing to gain, because all
// it reads and makes is there whole anyway, is not part of a chain; neither is one that would have to run between two
// slices.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "runtime/program/program.h"
#include "runtime/program/slices/rules.h"

namespace reprise {

struct Chain {
  std::int64_t units = 0;
  std::vector<OpId> ops{};  // in the program's order
  std::set<ValueId> inside{};
  std::set<ValueId> ends{};
  std::set<ValueId> sums{};  // those of the ends that are added up over the slices
  std::int64_t inside_bytes = 0;

  friend bool operator==(const Chain&, const Chain&) = default;
};

// A call from which a chain is looked for, and into how many units it is cut.
struct ChainBeginning {
  OpId op;
  std::int64_t units;
};

// The calls with the most bytes of what they read and make, most first, and the units that are tried for each.
[[nodiscard]] std::vector<ChainBeginning> chain_beginnings(const Program& program);

// The chain with the most bytes inside, without the calls `never`.
[[nodiscard]] std::optional<Chain> find_chain(const Program& program, Sums sums, const std::set<OpId>& never = {});

// Whether the call that reads and makes the most is in the chain. If another takes as much, slices of the chain cannot
// lower what one call takes.
[[nodiscard]] bool has_the_largest_call(const Program& program, const Chain& chain);

}  // namespace reprise
