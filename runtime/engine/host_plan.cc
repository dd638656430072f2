#include "runtime/engine/host_plan.h"

#include <numeric>

#include "reprise/place.h"

namespace reprise {

HostPlan::HostPlan(const Program& program, const Graph& graph, const Plan& plan)
    : waits_(copy_waits(graph, plan)), begin_(plan.actions.size() + 1, 0) {
  find_offsets(program, graph, plan);
  for (const CopyWait& wait : waits_) ++begin_[wait.action + 1];
  std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
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

}  // namespace reprise
