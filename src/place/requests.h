// What a plan asks of an arena: one buffer for each storage that a run makes, with all versions that are written into
// it, one for each workspace, and one for each second copy.
#pragma once

#include <vector>

#include "reprise/place.h"

namespace reprise::detail {

struct Request {
  Buffer buffer;  // its times are actions of the plan
  ValueId value;  // the first version in it; kNoValue: the workspace of the run at buffer.begin
};

// In the order of Placement::addresses; without what has no bytes or lies outside the arena.
[[nodiscard]] std::vector<Request> requests(const Graph& graph, const Costs& costs, const Plan& plan);

}  // namespace reprise::detail
