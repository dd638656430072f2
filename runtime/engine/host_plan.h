// What a plan asks of the link to the host: where each stored value lies in the host's block, and before which actions
// the device waits for a copy. Both follow from the list of actions alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "reprise/graph.h"
#include "reprise/lives.h"
#include "reprise/plan.h"
#include "runtime/program/program.h"

namespace reprise {

class HostPlan {
 public:
  // REQUIRES: validate(graph, plan) found nothing.
  HostPlan(const Program& program, const Graph& graph, const Plan& plan);

  [[nodiscard]] std::int64_t block_bytes() const { return block_bytes_; }
  [[nodiscard]] std::int64_t offset_of(ValueId value) const { return offsets_[index(value)]; }  // if it is stored
  [[nodiscard]] std::span<const CopyWait> waits_before(std::size_t action) const {
    return {waits_.data() + begin_[action], begin_[action + 1] - begin_[action]};
  }

 private:
  void find_offsets(const Program& program, const Graph& graph, const Plan& plan);

  std::int64_t block_bytes_ = 0;
  std::vector<std::int64_t> offsets_;  // by value
  std::vector<CopyWait> waits_;
  std::vector<std::size_t> begin_;  // by action, in waits_
};

}  // namespace reprise
