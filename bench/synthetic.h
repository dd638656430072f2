// Graphs of any size, to measure how the planners' time grows.
#pragma once

#include <cstdint>
#include <vector>

#include "reprise/graph_builder.h"

namespace reprise {

// A training step of about `ops` ops: residual blocks of four, each with its backward ops and parameter gradients.
inline CostedGraph residual_step(std::int64_t ops) {
  GraphBuilder b("residual step");
  const std::int64_t layers = ops / 2;
  std::vector<ValueId> x = {b.arriving(4096)};
  std::vector<ValueId> weight;
  for (std::int64_t i = 0; i < layers; ++i) {
    const auto k = static_cast<std::size_t>(i);
    weight.push_back(b.resident(64 + i % 7));
    x.push_back(b.value(1000 + 100 * (i % 13)));
    std::vector<ValueId> inputs = {x[k], weight[k]};
    if (i % 4 == 3) inputs.push_back(x[k - 3]);
    b.op({.name = "layer", .time_ns = 1000 + (i * 7919) % 5000, .inputs = inputs, .outputs = {x[k + 1]}});
  }
  ValueId gradient = b.value(1000);
  b.op({.name = "caller", .phase = Phase::kCaller, .inputs = {x.back()}, .outputs = {gradient}});
  for (std::int64_t i = layers; i-- > 0;) {
    const auto k = static_cast<std::size_t>(i);
    const ValueId next = b.value(1000 + 100 * ((i + 12) % 13));
    const ValueId of_weight = b.value(64 + i % 7);
    b.output(of_weight);
    b.op({.name = "layer'",
          .phase = Phase::kBackward,
          .time_ns = 2000 + (i * 7919) % 10000,
          .inputs = {gradient, x[k], weight[k]},
          .outputs = {next, of_weight}});
    gradient = next;
  }
  return b.build();
}

// A forward-only graph: `branches` chains of `length` nodes between a first and a last node. It has
// (length + 1)^branches + 2 lower sets.
inline CostedGraph parallel_chains(std::int64_t branches, std::int64_t length) {
  GraphBuilder b("parallel chains");
  const ValueId first = b.value(100);
  b.op({.name = "first", .time_ns = 1, .outputs = {first}});
  std::vector<ValueId> ends;
  for (std::int64_t branch = 0; branch < branches; ++branch) {
    ValueId x = first;
    for (std::int64_t i = 0; i < length; ++i) {
      const ValueId next = b.value(100 + 37 * ((branch + 3 * i) % 11));
      b.op({.name = "node", .time_ns = i % 3 == 0 ? 10 : 1, .inputs = {x}, .outputs = {next}});
      x = next;
    }
    ends.push_back(x);
  }
  b.op({.name = "last", .time_ns = 1, .inputs = ends, .outputs = {b.value(100)}});
  return b.build();
}

}  // namespace reprise
