// Is this plan legal for this graph? The check is obvious and slow on purpose, and shares no code with the planners.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "reprise/graph.h"
#include "reprise/plan.h"

namespace reprise {

struct Violation {
  std::size_t action;   // index into plan.actions; plan.actions.size() if something is wrong at the end
  std::string message;  // "action 41: computes op 7 'relu', whose input value 12 is not live"
};

// The first rule that the plan breaks, or nothing. Only the structure is checked; simulate() says what it costs. Rules:
//   1. every id exists
//   2. what is read is live
//   3. what is freed is live, and its memory is neither resident nor held by the caller
//   4. an op runs in place only if it has outputs that overwrite, none of which is live; what is overwritten is gone
//   5. `once` ops run exactly once, in graph order; starts and waits may stand elsewhere among them
//   6. step outputs are live at the end
//   7. what is stored is live and may be freed, and it is stored once; what is fetched has been stored and is not live
//   8. every run of a start is waited for before it runs again, and before the caller's op or the end; until then, what
//   it
//      makes and what it reads stay as they are, and nothing else reads what it makes (the graph sees to that)
//   9. a wait runs in place
[[nodiscard]] std::optional<Violation> validate(const Graph& graph, const Plan& plan);

}  // namespace reprise
