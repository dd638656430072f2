// Schedules that cut a chain in two, reverse the right part from the cut, then the left part from the start.
//
// reverse(first .. last): if it is one stage, run it saving all and take its backward. Otherwise advance k stages from
// the start, whose input stays, and hold the state reached; reverse the last stages from there, then the first k.
//
// Example, three stages, always cut after the first (K keep input, S save all, B backward):
// K1 K2 S3 B3 S2 B2 S1 B1. Cut after the second: K1, drop 2, S3 B3, then K1 S2 B2 S1 B1.
//
// Used by revolve.cc and chen_chain.cc, which differ in k only. Memory of the walk: the parts still to do.
#pragma once

#include "solve/chain/chain.h"

namespace reprise::detail {

// split(stages, states): stages to advance, 1 <= k < stages, when `states` inputs may be held, the part's own among
// them.
template <typename Split>
[[nodiscard]] std::vector<ChainAction> nested_schedule(std::uint32_t stages, std::uint32_t states, const Split& split) {
  struct Range {
    std::uint32_t first;
    std::uint32_t count;
    std::uint32_t states;
  };
  using Kind = ChainAction::Kind;
  std::vector<ChainAction> actions;
  std::vector<Range> parts;
  if (stages > 0) parts.push_back({1, stages, states});
  while (!parts.empty()) {
    const Range part = parts.back();
    parts.pop_back();
    if (part.count == 1) {
      actions.push_back({Kind::kForwardSaveAll, part.first});
      actions.push_back({Kind::kBackward, part.first});
      continue;
    }
    const std::uint32_t k = split(part.count, part.states);
    actions.push_back({Kind::kForwardKeepInput, part.first});
    for (std::uint32_t i = 1; i < k; ++i) actions.push_back({Kind::kForwardDrop, part.first + i});
    parts.push_back({part.first, k, part.states});
    parts.push_back({part.first + k, part.count - k, part.states - 1});
  }
  return actions;
}

}  // namespace reprise::detail
