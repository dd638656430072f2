// The step as plain PyTorch runs it, made of the graph of a step as plans run it.
//
// A plan writes results over operands that nobody reads again; eager does so with buffers, and where it adds gradients
// up. Whether the model's own code does is not known, and taken for no, which may predict too much in the forward pass.
// A plan runs the backward pass of a large convolution as two calls; eager as one.
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

// Of `lone_seeds` alone eager adds nothing up: they are views of the gradient of the loss.
[[nodiscard]] EagerGraph eager_graph(const Graph& graph, const std::set<ValueId>& lone_seeds);

}  // namespace reprise
