// Planners: one question, several methods, one answer type.
//
//   Solution found = solve(graph, costs, {.planner = "lower-sets", .budget_bytes = parse_bytes("6GiB")});
//   if (found.status == Status::kInfeasible) { ... found.smallest_budget_bytes ... }
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reprise/costs.h"
#include "reprise/graph.h"
#include "reprise/plan.h"
#include "reprise/simulate.h"

namespace reprise {

enum class Status : std::uint8_t {
  kOptimal,     // no plan of this planner's family is better under its objective
  kFeasible,    // within the budget
  kInfeasible,  // nothing within the budget; smallest_budget_bytes says what would do
  kStopped,     // a limit of work was reached before there was an answer; message says which
};

// Against what the budget is held.
enum class Judge : std::uint8_t {
  kSimulated,  // the true peak: candidates are made at many internal budgets, the fastest that fits is taken
  kFormula,    // the papers' estimate, as printed: one run
};

// What a lower-set planner asks of its sequence at one internal budget.
enum class Objective : std::uint8_t {
  kAny,          // judge simulated: candidates of all three; judge formula: kTime
  kTime,         // least overhead ("time-centric")
  kMaxOverhead,  // most overhead, which makes coarse blocks ("memory-centric" as the paper describes it)
  kMinCache,     // least cached bytes, then least overhead ("memory-centric" as the authors' program computes it)
};

struct PlannerKnobs;  // limits and switches of the searches, for studies and tests

struct SolveOptions {
  std::string planner = "auto";                // one of planner_names()
  std::optional<std::int64_t> budget_bytes{};  // none: the smallest feasible one
  Judge judge = Judge::kSimulated;
  Objective objective = Objective::kAny;
  bool all_budgets = false;  // planner auto: look for good plans at every budget; curve() does
  bool keep_last = false;  // judge formula: keep the last block instead of recomputing it. Otherwise always considered

  std::size_t work = 250'000'000;  // planner auto: reads it may look at, never a clock; for all budgets twice as many
  std::function<bool()> should_stop{};  // asked between pieces of work; true ends the search
  std::function<void(std::size_t done, std::size_t total)> progress{};
  std::shared_ptr<const PlannerKnobs> knobs{};  // none: all at their defaults
};

// What the papers' formulas say of a lower-set sequence.
struct Formula {
  std::int64_t overhead = 0;  // time recomputed
  std::int64_t peak_bytes = 0;
  std::int64_t cached_bytes = 0;
  std::size_t blocks = 0;

  friend bool operator==(const Formula&, const Formula&) = default;
};

struct Solution {
  Status status = Status::kStopped;
  Plan plan{};  // for the graph, or, of a forward-only graph, for complete_backward(graph, costs); of a stopped search,
                // the best so far that fits; empty where there is none
  Simulation simulation{};
  std::int64_t budget_bytes = 0;           // as asked, or the smallest feasible one where none was
  std::int64_t smallest_budget_bytes = 0;  // known to be feasible under the judge; 0: not known
  Plan smallest_plan{};  // judge simulated: where nothing fits, the plan whose peak smallest_budget_bytes is
  std::string planner{};
  std::optional<Formula> formula{};
  std::int64_t overhead_error = 0;  // formula.overhead is at most this far above the least; 0 unless rounded
  // Planner auto: no plan whose backward ops first run in the order of this one is faster within the budget, and no
  // plan of any order has a peak below floor_bytes (0: not known). Where `reordered`, that is not the captured order;
  // where there is no plan, it is.
  std::optional<std::int64_t> lower_bound_ns{};
  std::int64_t floor_bytes = 0;
  bool reordered = false;
  std::string message{};  // why stopped or infeasible, or a caveat, for people

  struct Stats {
    std::size_t nodes = 0;       // of the forward view
    std::size_t lower_sets = 0;  // in the family searched
    std::size_t partials = 0;    // partial sequences made by the search
    std::size_t candidates = 0;  // plans simulated
  } stats{};

  // How much faster another plan of this order could be at most; nothing where that is not known.
  [[nodiscard]] std::optional<std::int64_t> gap_ns() const {
    if (!lower_bound_ns || plan.actions.empty()) return std::nullopt;
    return simulation.time_ns - *lower_bound_ns;
  }
  [[nodiscard]] bool found() const { return status == Status::kOptimal || status == Status::kFeasible; }
};

// Throws InputError for an unknown planner, a negative budget, or costs that are not the graph's. Every plan returned
// passed validate and simulate.
[[nodiscard]] Solution solve(const Graph& graph, const Costs& costs, const SolveOptions& options);

// For a plan of any origin, which passed validate: no plan within its peak that runs the ops of backward in the same
// order is faster than this.
[[nodiscard]] std::int64_t lower_bound_ns(const Graph& graph, const Costs& costs, const Plan& plan);

// Best plans over all budgets, smallest peak first: each is faster than all before it. Budgets in the options are
// ignored. Stopped early where should_stop said so: then `stopped` and what was found until then.
struct Curve {
  std::vector<Solution> points{};
  bool stopped = false;
  std::string message{};
};
[[nodiscard]] Curve curve(const Graph& graph, const Costs& costs, const SolveOptions& options);

[[nodiscard]] std::vector<std::string_view> planner_names();

}  // namespace reprise
