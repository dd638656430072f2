// Calls the parts of src/ that are compared with the oracles on test graphs.
#pragma once

#include "oracle/outcomes.h"
#include "oracle/reference.h"
#include "papers/forward_view.h"
#include "papers/lower_sets.h"
#include "papers/papers_backward.h"
#include "plan/expand.h"
#include "plan/liveness.h"
#include "reprise/simulate.h"
#include "reprise/validate.h"
#include "solve/lower_sets/formula.h"

namespace reprise::test {

[[nodiscard]] inline detail::Blocks to_blocks(const Dag& dag, const Sequence& sequence) {
  detail::Blocks blocks{.block = std::vector<std::uint32_t>(dag.preds.size(), 0),
                        .count = static_cast<std::uint32_t>(sequence.size())};
  for (std::size_t i = sequence.size(); i-- > 0;) {
    for (const int v : sequence[i]) blocks.block[v] = static_cast<std::uint32_t>(i);
  }
  return blocks;
}

[[nodiscard]] inline Mask to_mask(const detail::LowerSetFamily& family, detail::SetId set, int nodes) {
  Mask mask = 0;
  for (int v = 0; v < nodes; ++v) mask |= family.contains(set, static_cast<detail::NodeId>(v)) ? 1U << v : 0U;
  return mask;
}

[[nodiscard]] inline Plan papers_plan(const detail::PapersStep& step, const detail::Blocks& blocks, bool keep_last) {
  return detail::place_frees(step.graph, detail::expand(step, blocks, keep_last));
}

}  // namespace reprise::test
