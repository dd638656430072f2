// The planners: several methods for one question, with one type of answer.
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
#include "reprise/place.h"
#include "reprise/plan.h"
#include "reprise/simulate.h"

namespace reprise {

enum class Status : std::uint8_t {
  kOptimal,     // no plan of this planner's family is better under its objective
  kFeasible,    // within the budget
  kInfeasible,  // no plan is within the budget; smallest_budget_bytes would be enough
  kStopped,     // a limit of the work was reached before there was an answer; message says which
};

// What is compared with the budget.
enum class Judge : std::uint8_t {
  kSimulated,  // the true peak: candidates are made at many internal budgets, and the fastest that fits is taken
  kFormula,    // the papers' estimate, as published: one run
};

// What a lower-set planner asks of its sequence at one internal budget.
enum class Objective : std::uint8_t {
  kAny,          // judge simulated: candidates of all three objectives; judge formula: kTime
  kTime,         // least overhead ("time-centric")
  kMaxOverhead,  // most overhead, which makes coarse blocks ("memory-centric" as the paper describes it)
  kMinCache,     // least cached bytes, then least overhead ("memory-centric" as the authors' program computes it)
};

struct PlannerKnobs;  // limits and switches of the searches, for studies and tests

struct SolveOptions {
  std::string planner = "auto";                // one of planner_names()
  std::optional<std::int64_t> budget_bytes{};  // none: the smallest feasible budget
  // Above 0, with costs that have a link: plans may store values in so much of the host's memory. Within a budget, the
  // plan is never slower than without, nor slower than with less of it or with a slower link.
  std::int64_t host_budget_bytes = 0;
  Judge judge = Judge::kSimulated;
  Objective objective = Objective::kAny;
  bool all_budgets = false;  // planner auto: look for good plans at every budget, as curve() does
  bool keep_last = false;  // judge formula: keep the last block instead of recomputing it. Otherwise always considered

  std::optional<PlaceOptions> addresses{};  // also say where everything lies in one arena
  // With addresses, a budget and judge simulated: the arena and what lies outside it have to be within the budget. If
  // those of the fastest plan are not, slower ones are packed, and at most two more searches made for them.
  bool arena_within_budget = false;

  std::size_t work = 250'000'000;  // planner auto: how many reads it looks at (no clock); twice as many for all budgets
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
  Plan plan{};  // for the graph, or for complete_backward(graph, costs) if it is forward-only; after a stopped search,
                // the best so far that fits; empty if there is none
  Simulation simulation{};
  // Where `plan` has everything, if addresses were asked for. Unless arena_within_budget is set, the peak alone is
  // compared with the budget: the arena follows the plan, and what lies outside it comes on top of arena_bytes. If it
  // is set and no arena that was tried fits, there is no placement, and the message says so; the plan's peak fits
  // nevertheless.
  std::optional<Placement> placement{};
  std::int64_t budget_bytes = 0;           // as asked for, or the smallest feasible one if none was given
  std::int64_t smallest_budget_bytes = 0;  // known to be feasible under the judge; 0: not known
  Plan smallest_plan{};                    // judge simulated: if nothing fits, a plan within smallest_budget_bytes
  std::string planner{};
  std::optional<Formula> formula{};
  std::int64_t overhead_error = 0;  // formula.overhead is at most this far above the least; 0 unless rounded
  // Planner auto: within the budget, no plan whose backward ops first run in the same order as in this one is faster
  // than lower_bound_ns, and no plan of any order has a peak below floor_bytes (0: not known). If `reordered`, that
  // order is not the captured one; if there is no plan, it is the captured one.
  std::optional<std::int64_t> lower_bound_ns{};
  std::int64_t floor_bytes = 0;
  bool reordered = false;
  std::string message{};  // for people: why the search stopped, why the budget is infeasible, or a caveat

  struct Stats {
    std::size_t nodes = 0;       // of the forward view
    std::size_t lower_sets = 0;  // in the family searched
    std::size_t partials = 0;    // partial sequences made by the search
    std::size_t candidates = 0;  // plans simulated
    std::size_t arenas = 0;      // plans packed, if the arena has to be within the budget
  } stats{};

  // How much faster another plan of this order could be at most; nothing if that is not known.
  [[nodiscard]] std::optional<std::int64_t> gap_ns() const {
    if (!lower_bound_ns || plan.actions.empty()) return std::nullopt;
    return simulation.time_ns - *lower_bound_ns;
  }
  [[nodiscard]] bool found() const { return status == Status::kOptimal || status == Status::kFeasible; }
};

// Throws InputError for an unknown planner, a negative budget, or costs that do not belong to the graph. Every returned
// plan has passed validate and simulate.
[[nodiscard]] Solution solve(const Graph& graph, const Costs& costs, const SolveOptions& options);

// For a plan from anywhere that has passed validate: no plan within its peak, and within what it takes of the host's
// memory, that runs the backward ops in the same order is faster than this.
[[nodiscard]] std::int64_t lower_bound_ns(const Graph& graph, const Costs& costs, const Plan& plan);

// The best plans over all budgets, smallest peak first: each is faster than all before it. The budget and addresses in
// the options are ignored. If should_stop ends the search early, `stopped` is set and the points are those found until
// then.
struct Curve {
  std::vector<Solution> points{};
  bool stopped = false;
  std::string message{};
};
[[nodiscard]] Curve curve(const Graph& graph, const Costs& costs, const SolveOptions& options);

[[nodiscard]] std::vector<std::string_view> planner_names();

}  // namespace reprise
