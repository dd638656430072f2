// Frees by liveness: the least memory for a given order of runs.
#pragma once

#include <span>

#include "reprise/graph.h"
#include "reprise/plan.h"

namespace reprise::detail {

// A plan that runs `runs` in this order (an op may appear several times). Every value is freed right after its last
// read before it is made again or the step ends, and an op runs in place if nothing reads the value it overwrites any
// more.
[[nodiscard]] Plan place_frees(const Graph& graph, std::span<const OpId> runs);

}  // namespace reprise::detail
