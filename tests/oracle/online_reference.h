// The online method again, with nothing but sets and loops: recursion instead of a stack, components as labels that are
// rewritten when two meet, and every candidate looked at in full.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "reprise/costs.h"
#include "reprise/ids.h"

namespace reprise::test {

struct OnlineQuestion {
  std::int64_t budget_bytes = 0;
  bool ghosts_first = true;
  bool oldest_first = true;
};

// The ops in the order in which they run; nothing if the budget is too small.
[[nodiscard]] std::optional<std::vector<OpId>> online_runs(const CostedGraph& step, const OnlineQuestion& question);

}  // namespace reprise::test
