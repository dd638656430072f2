// Searches all schedules of a tiny step that may store any values in the host's memory and fetch them: every order of
// computes, frees, stores and fetches. A state is what is live, stored and done, with the time that each copy under way
// still takes; the search goes through the whole graph of states. It shares no code with src/.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "reprise/costs.h"

namespace reprise::test {

// The least time of any schedule within the budget, with the first runs of the backward ops in the given order, or
// nothing. The host's memory is not limited. REQUIRES: at most 8 values and 8 ops, a link, and no pinned value that is
// overwritten.
[[nodiscard]] std::optional<std::int64_t> least_copying_time(const Graph& step, const Costs& costs,
                                                             std::int64_t budget_bytes, std::span<const OpId> order);

}  // namespace reprise::test
