// The order in which FSDP2 runs a step whose layers are its units, as torch.distributed.fsdp does it by default.
//
//   forward:   gather root | wait, gather 0 | embedding | wait, gather 1 | layer 0 | wait, gather 2 | layer 1 | ...
//   backward:  gather 1 | head | wait, gather 0 | layer 1, reduce 1 | wait | layer 0, wait for reduce 1, reduce 0 | ...
//
// The weights of a unit are gathered together, while the unit before it runs (implicit prefetch in forward, explicit
// one in backward). Its gradients are reduced together when its backward is over, after the reduction of the unit
// before. What is in no layer belongs to the root: gathered at first, reduced at last; or the embedding is a unit, and
// the head another one. Weights are freed after their last use in a pass, which is sooner than FSDP2 frees them.
#pragma once

#include <span>
#include <vector>

#include "reprise/graph.h"

namespace reprise::bench {

enum class Root { kWhole, kApart };

// `runs`: forward, and backward with what it makes again, each start just before its wait. REQUIRES: casts that feed
// collectives are named "to_…", and scopes of layers begin with "layers.N".
[[nodiscard]] std::vector<OpId> fsdp_order(const Graph& graph, std::span<const OpId> runs, Root root);

}  // namespace reprise::bench
