// Overloads for tests: functions of the library that take a graph and its costs, called with a CostedGraph.
#pragma once

#include <string>

#include "papers/forward_view.h"
#include "papers/papers_backward.h"
#include "reprise/reprise.h"

namespace reprise {

inline std::string format_graph(const CostedGraph& step) { return format_graph(step.graph, step.costs); }
inline CostedGraph complete_backward(const CostedGraph& forward) {
  return complete_backward(forward.graph, forward.costs);
}
inline Simulation simulate(const CostedGraph& step, const Plan& plan) { return simulate(step.graph, step.costs, plan); }
inline Timeline timeline(const CostedGraph& step, const Plan& plan) { return timeline(step.graph, step.costs, plan); }
inline Solution solve(const CostedGraph& step, const SolveOptions& options) {
  return solve(step.graph, step.costs, options);
}
inline Curve curve(const CostedGraph& step, const SolveOptions& options) {
  return curve(step.graph, step.costs, options);
}

namespace detail {

inline ForwardView forward_view(const CostedGraph& step) { return forward_view(step.graph, step.costs); }
inline PapersStep papers_step(const CostedGraph& forward) { return papers_step(forward.graph, forward.costs); }

}  // namespace detail
}  // namespace reprise
