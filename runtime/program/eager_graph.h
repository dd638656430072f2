// The step as plain PyTorch runs it, made from the graph of the step as plans run it.
//
// A plan writes results over operands that nobody reads again; eager does so with buffers, and where it adds gradients
// up. Whether the model's own code does so is not known. It is assumed not to, so the prediction for the forward pass
// may be too high. A plan runs the backward pass of a large convolution as two calls, eager as one.
#pragma once

#include <set>
#include <vector>

#include "reprise/graph.h"

namespace reprise {

struct EagerGraph {
  Graph graph;                           // values have the ids they had
  std::vector<std::vector<OpId>> parts;  // by op: the ops that it stands for
  std::vector<ValueId> views;            // values that take no memory in eager
};

// Eager does not add up gradients that come from `lone_seeds` alone: they are views of the gradient of the loss.
[[nodiscard]] EagerGraph eager_graph(const Graph& graph, const std::set<ValueId>& lone_seeds);

}  // namespace reprise
