// Sequences of least cached bytes, and the smallest budget that has a sequence at all.
//
// More cached bytes never make a later block pass easier, so one number per set is enough:
//
//   least({}) = 0
//   least(L') = min over L < L' with least(L) + pass_bytes(L, L') <= budget of least(L) + cached_bytes(L, L')
//
// The budget is feasible exactly when least(V) is finite. Ties go to the smaller overhead, so that the sequence found
// is the paper's "memory-centric" one as its authors' program computes it. O(pairs) for one budget.
//
// Example, chain a -> b -> c of sizes 1, 2, 4 and budget 10: {a,b}, V caches b (2) and has block passes of 10, 10; the
// sequence V alone caches nothing but has one of 14.
//
// Smallest budget: bisection in which both ends jump. A feasible run lowers the upper end to the peak it reached; an
// infeasible one raises the lower end to the smallest block pass it had to refuse, because below that nothing changes.
//
// Kusumoto et al., NeurIPS 2019. Tested by tests/oracle (brute force over all sequences of all small graphs).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "solve/lower_sets/transitions.h"

namespace reprise::detail {

using SetSequence = std::vector<SetId>;  // L_1 .. L_k = V

// Returns nothing if the budget is infeasible.
[[nodiscard]] std::optional<SetSequence> least_cache_sequence(const Transitions& transitions,
                                                              std::int64_t budget_bytes);

// `known_feasible` is a budget for which a sequence exists in this family, if one is known. Returns nothing if
// should_stop asked to stop.
[[nodiscard]] std::optional<std::int64_t> smallest_formula_budget(const Transitions& transitions,
                                                                  std::optional<std::int64_t> known_feasible,
                                                                  const std::function<bool()>& should_stop);

// least(L) for every set; kUnreachable if the set cannot be reached.
inline constexpr std::int64_t kUnreachable = std::int64_t{1} << 62;
[[nodiscard]] std::vector<std::int64_t> least_cached_bytes(const Transitions& transitions, std::int64_t budget_bytes);

}  // namespace reprise::detail
