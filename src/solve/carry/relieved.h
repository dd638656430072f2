// Bases for placing.h that are made for a link: what it can carry away by the time of each run need not fit.
//
// A link of a given pace has carried pace * t bytes away after a time t of forward, and must have brought the same back
// by the end of backward. So at each op the step has that much more room, its *relief*: it grows during forward, stays
// while backward is long from its end, and shrinks to nothing. Example: forward takes 10 ns, backward 20 ns, the link 3
// bytes per ns. At the caller's op 30 bytes are away; from 10 ns before the end on, 3 fewer with each ns.
//
// The search is that of `auto` on a step whose ops need less by their relief, for one pace after the other, each from
// the best labels for the pace before. The paces do not depend on the link, so neither do the bases; only how many
// paces there are does. Tested by tests/unit/solve/carry/relieved_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "reprise/solve.h"
#include "solve/auto/evaluator.h"
#include "solve/auto/local_search.h"
#include "solve/auto/pool.h"
#include "solve/auto/step_model.h"
#include "solve/problem.h"

namespace reprise::detail {

class RelievedSearch {
 public:
  // `start` is a plan within the budget, or any other. All must outlive it.
  RelievedSearch(const Problem& problem, const SolveOptions& options, const Plan& start);

  using Carry = std::function<void(const Plan& base, double bytes_per_ns)>;
  // Tells `carry` of bases for paces up to `most_bytes_per_ns`, for a step that needs `excess_bytes` more than there
  // is.
  void run(double most_bytes_per_ns, std::int64_t excess_bytes, const Carry& carry);

 private:
  [[nodiscard]] ByOp<std::int64_t> relief(double bytes_per_ns) const;
  // The best base for this relief, or nothing.
  [[nodiscard]] std::optional<Plan> search(const ByOp<std::int64_t>& relief, bool aims);

  const Problem& problem_;
  const SolveOptions& options_;
  StepModel model_;
  std::vector<Choice> best_;
};

}  // namespace reprise::detail
