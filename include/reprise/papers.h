// Graphs in the papers' style, which have only a forward part.
#pragma once

#include "reprise/costs.h"
#include "reprise/graph.h"

namespace reprise {

// A forward-only graph with the papers' model of the backward pass added: the ops and values of `forward` keep their
// ids, then come the caller's op and the backward ops. Backward ops take no time: the papers count forward work only.
// Throws InputError if `forward` already has a backward pass.
[[nodiscard]] CostedGraph complete_backward(const Graph& forward, const Costs& costs);

}  // namespace reprise
