// The papers' model of the backward pass, for graphs that have only a forward part.
//
// The gradient of node u has the size of u and is the sum of one contribution per consumer w, accumulated in place:
//   B(w -> u) reads the gradient of w, and, as `backward_reads` says, the inputs of w, the outputs of w, or both.
//   B(w -> )  for a node without predecessors: the gradient of w arrives, nothing is passed on.
//   S(v)      makes the gradient of a sink.
// One op per edge, because a planner may run the contributions of one node in different block passes.
#pragma once

#include <vector>

#include "papers/forward_view.h"
#include "reprise/costs.h"
#include "reprise/graph.h"

namespace reprise::detail {

// A backward op of the model.
struct Contribution {
  OpId op;
  NodeId from;    // w, or the sink of a seed
  NodeId target;  // u; `from` itself for seeds and for B(w -> )
  bool seed;
};

struct PapersStep {
  Graph graph;  // forward ops and values keep their ids
  Costs costs;
  ForwardView view;
  std::vector<Contribution> backward;   // in op order: w from last to first, seed before contributions
  std::vector<std::uint8_t> reads_own;  // node -> its contributions read its own outputs
};

// REQUIRES: forward.forward_only()
[[nodiscard]] PapersStep papers_step(const Graph& forward, const Costs& costs);

}  // namespace reprise::detail
