#include "runtime/engine/host_plan.h"

#include <utility>

#include "reprise/lives.h"
#include "reprise/place.h"

namespace reprise {

HostPlan::HostPlan(const Program& program, const Graph& graph, const Plan& plan) {
  find_offsets(program, graph, plan);
  find_waits(graph, plan);
}

void HostPlan::find_offsets(const Program& program, const Graph& graph, const Plan& plan) {
  const std::vector<HostLife> lives = host_lives(graph, plan);
  std::vector<Buffer> buffers;
  for (const HostLife& life : lives) {
    buffers.push_back({.begin = life.first,
                       .end = life.last.value_or(plan.actions.size()),
                       .bytes = program.values[index(life.value)].bytes});
  }
  const Packing packing = pack(buffers, {.outliving_on_top = false});
  block_bytes_ = packing.arena_bytes;
  offsets_.resize(program.values.size(), 0);
  for (std::size_t i = 0; i < lives.size(); ++i) offsets_[index(lives[i].value)] = packing.offsets[i];
}

// A value that is let go is waited for once: later frees of it find its copy done.
void HostPlan::find_waits(const Graph& graph, const Plan& plan) {
  std::vector<std::uint8_t> storing(graph.num_values(), 0), coming(graph.num_values(), 0);
  const auto wait_for_fetch = [&](ValueId v) {
    if (std::exchange(coming[index(v)], 0) != 0) waits_.push_back({v, true});
  };
  const auto wait_for_store = [&](ValueId v) {
    if (std::exchange(storing[index(v)], 0) != 0) waits_.push_back({v, false});
  };
  for (const Action action : plan.actions) {
    switch (action.kind()) {
      case Action::Kind::kCompute:
      case Action::Kind::kComputeInPlace:
        for (const ValueId v : graph.inputs(action.op())) wait_for_fetch(v);
        for (const ValueId v : graph.outputs(action.op())) {
          const ValueId old = graph.overwrites(v);
          if (action.kind() == Action::Kind::kComputeInPlace && old != kNoValue) wait_for_store(old);
        }
        break;
      case Action::Kind::kFree:
        wait_for_fetch(action.value());
        wait_for_store(action.value());
        break;
      case Action::Kind::kStore:
        storing[index(action.value())] = 1;
        break;
      case Action::Kind::kFetch:
        coming[index(action.value())] = 1;
        break;
    }
    begin_.push_back(waits_.size());
  }
}

}  // namespace reprise
