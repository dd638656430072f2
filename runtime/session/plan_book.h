// The plans known for one step: found by the core's planners, kept in a file for later runs in either language.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reprise/costs.h"
#include "reprise/graph.h"
#include "reprise/plan.h"
#include "reprise/simulate.h"
#include "reprise/solve.h"
#include "runtime/session/plan_method.h"

namespace reprise {

// A plan within a budget, or (kInfeasible) the smallest budget that has one.
struct FoundPlan {
  Status status = Status::kInfeasible;
  Plan plan{};
  std::string planner{};
  Simulation simulation{};
  std::int64_t smallest_budget_bytes = 0;        // if there is no plan
  std::string message{};                         // why there is no plan, for people
  std::optional<std::int64_t> lower_bound_ns{};  // no plan with this order of backward is faster within the budget
  bool is_provisional = false;                   // a longer search may find a faster plan
  bool is_of_family = false;                     // made for another size, and no search for this one has confirmed it

  [[nodiscard]] bool found() const { return status != Status::kInfeasible; }
};

// Plans found for other budgets of the same step are used too. With the plans in the book, a larger budget never gives
// a slower plan, and a budget that was once named as the smallest has a plan, however little time there is. A search
// that ran out of time is repeated when there is more time.
class PlanBook {
 public:
  using Search = std::function<Solution(const Graph& graph, const Costs& costs, const SolveOptions& options)>;

  // `graph` and `costs` must outlive the book. Throws InputError for an unknown planner.
  PlanBook(const Graph& graph, const Costs& costs, PlanMethod method, Search search = solve);

  // The fastest plan within the budget, or, without a budget, the plan without recomputation.
  [[nodiscard]] FoundPlan find(std::optional<std::int64_t> budget_bytes, double seconds);
  // The smallest peak of all plans known after a search; from then on, find() has a plan for this budget.
  [[nodiscard]] std::int64_t smallest_budget_bytes(double seconds);
  // Takes over what another book knows of the same step with other costs.
  void carry_over(const PlanBook& other);
  // Adds what a search outside of the book found for a budget; if it ran out of time, after how many seconds.
  void add(std::int64_t budget_bytes, Solution found, std::optional<double> stopped_after);
  // Whether a search of so many seconds may find more than the book knows.
  [[nodiscard]] bool is_worth_a_search(std::int64_t budget_bytes, double seconds) const;

 private:
  struct Known {
    std::string planner;
    Plan plan;
    Simulation simulation;
    std::int64_t bound_budget_bytes = 0;  // the budget for which the bound holds
    std::optional<std::int64_t> lower_bound_ns{};
  };
  struct Asked {
    std::int64_t budget_bytes = 0;
    std::int64_t smallest_budget_bytes = 0;        // 0: the budget had a plan
    std::optional<std::int64_t> stopped_after_ms;  // nothing: the search came to its end
  };
  struct Contents {
    std::vector<Known> plans;
    std::map<std::int64_t, Asked> asked;  // by budget
  };
  struct File;
  struct Unwritten;

  void search(std::int64_t budget_bytes, double seconds);
  void keep(Known plan);
  [[nodiscard]] FoundPlan best(std::int64_t budget_bytes) const;
  void read();
  [[nodiscard]] Contents contents_of(const std::string& text) const;
  void check(const Contents& contents) const;
  void write();

  const Graph& graph_;
  const Costs& costs_;
  PlanMethod method_;
  Search solve_;
  std::string name_;  // of the file
  Contents contents_;
};

// Throws InputError, with all names, if this is not the name of a planner.
void check_planner(const std::string& planner);

// For example "36.2 %", in percent of the step without recomputation and waiting, as in all texts.
[[nodiscard]] std::string recomputation_text(const Simulation& simulation);

}  // namespace reprise
