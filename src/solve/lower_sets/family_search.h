// Best sequences over one family of lower sets, for any budget and objective.
#pragma once

#include <cstdint>
#include <optional>

#include "papers/lower_sets.h"
#include "reprise/solve.h"
#include "solve/lower_sets/transitions.h"
#include "solve/problem.h"

namespace reprise::detail {

class FamilySearch {
 public:
  // All must outlive the object.
  FamilySearch(const Problem& problem, const LowerSetFamily& family, const SolveOptions& options, bool keep_last);

  // Takes its bounds from the answers of a search over a part of this family.
  void begin_from(FamilySearch& smaller);
  // Times may be rounded to this many units: good sequences instead of best ones.
  void round_to(std::int64_t units) { max_units_ = units; }

  // The smallest budget that has a sequence, to the byte, or nothing if asked to stop.
  [[nodiscard]] std::optional<std::int64_t> smallest_budget();
  // Returns nothing if the budget is infeasible, if asked to stop, or if there are too many partials. Adds to the
  // solution's stats and sets its overhead_error.
  [[nodiscard]] std::optional<Blocks> find(std::int64_t budget_bytes, Objective objective, Solution& solution);

 private:
  [[nodiscard]] std::optional<std::int64_t> known_overhead(std::int64_t budget_bytes, Objective objective);

  const ForwardView& view_;
  const SolveOptions& options_;
  Transitions transitions_;
  FamilySearch* smaller_ = nullptr;
  std::int64_t max_units_ = 0;
  std::optional<std::int64_t> smallest_;
};

}  // namespace reprise::detail
