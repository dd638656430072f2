#include "solve/lower_sets/family_search.h"

#include "solve/lower_sets/cache_search.h"
#include "solve/lower_sets/formula.h"
#include "solve/lower_sets/overhead_search.h"
#include "solve/planner_knobs.h"

namespace reprise::detail {

FamilySearch::FamilySearch(const Problem& problem, const LowerSetFamily& family, const SolveOptions& options,
                           bool keep_last)
    : view_(problem.view()), options_(options), transitions_(problem.view(), family, keep_last) {}

void FamilySearch::begin_from(FamilySearch& smaller) {
  if (knobs_of(options_).prunings.incumbent) smaller_ = &smaller;
}

std::optional<std::int64_t> FamilySearch::smallest_budget() {
  if (!smallest_) {
    const auto known = smaller_ != nullptr ? smaller_->smallest_budget() : std::nullopt;
    smallest_ = smallest_formula_budget(transitions_, known, options_.should_stop);
  }
  return smallest_;
}

std::optional<Blocks> FamilySearch::find(std::int64_t budget_bytes, Objective objective, Solution& solution) {
  std::optional<SetSequence> sequence;
  if (objective == Objective::kMinCache) {
    sequence = least_cache_sequence(transitions_, budget_bytes);
  } else {
    OverheadResult result =
        extreme_overhead_sequence(transitions_, {.budget_bytes = budget_bytes,
                                                 .most = objective == Objective::kMaxOverhead,
                                                 .prunings = knobs_of(options_).prunings,
                                                 .known_overhead = known_overhead(budget_bytes, objective),
                                                 .max_partials = knobs_of(options_).max_partials,
                                                 .max_units = max_units_,
                                                 .should_stop = options_.should_stop});
    solution.stats.partials += result.partials;
    solution.overhead_error = result.overhead_error;
    sequence = std::move(result.sequence);
  }
  if (!sequence) return std::nullopt;
  return transitions_.family().blocks(*sequence);
}

std::optional<std::int64_t> FamilySearch::known_overhead(std::int64_t budget_bytes, Objective objective) {
  if (smaller_ == nullptr) return std::nullopt;
  Solution ignored;
  const auto blocks = smaller_->find(budget_bytes, objective, ignored);
  if (!blocks) return std::nullopt;
  return formula(view_, *blocks, transitions_.keep_last()).overhead;
}

}  // namespace reprise::detail
