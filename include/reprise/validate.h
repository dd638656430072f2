// Is this plan legal for this graph? Obvious and slow on purpose, and shares nothing with the planners.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "reprise/graph.h"
#include "reprise/plan.h"

namespace reprise {

struct Violation {
  std::size_t action;   // index into plan.actions; plan.actions.size() for what is wrong at the end
  std::string message;  // "action 41: computes op 7 'relu', whose input value 12 is not live"
};

// Structure alone: what the plan costs is for simulate() to say. The first rule the plan breaks, or nothing. Rules:
//   1. every id exists
//   2. what is read is live
//   3. what is freed is live, and its memory is neither resident nor held by the caller
//   4. in place only for an op with outputs that overwrite, none of which is live; what is overwritten dies
//   5. `once` ops run exactly once, in graph order
//   6. step outputs are live at the end
[[nodiscard]] std::optional<Violation> validate(const Graph& graph, const Plan& plan);

}  // namespace reprise
