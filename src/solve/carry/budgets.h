// Plans that store and fetch at budgets that nobody has named: along a curve, and below the least peak of all plans
// that copy nothing.
//
// Both begin with a front of plans without copies, each of which is a base at every budget below its peak (carry.h).
// Tested by tests/property/carry_test.cc.
#pragma once

#include <cstdint>
#include <optional>

#include "reprise/solve.h"
#include "solve/front.h"
#include "solve/problem.h"

namespace reprise::detail {

// Adds to the front of a curve what copies, at budgets in even steps and then below its least peak. Returns whether it
// was not stopped.
bool carry_along(const Problem& problem, const SolveOptions& options, Front& front);

// The least of a few budgets above `above_bytes`, and below the least peak of the front, within which a plan of the
// front fits with copies; nothing if none does.
[[nodiscard]] std::optional<std::int64_t> least_carried(const Problem& problem, const SolveOptions& options,
                                                        const Front& front, std::int64_t above_bytes);

}  // namespace reprise::detail
