// Plans of one structure, kept so that a step of another size gets one in milliseconds, without a search.
//
// A model that is called with batches of several sizes runs the same ops on the same values each time; only the costs
// differ. So a plan made for one size is a plan for all of them, and the simulator says what it takes at each.
//
//   PlanFamily family(graph, costs);  // the structure, and the costs by which plans are thinned
//   for (const Solution& point : curve(graph, costs, {}).points) family.add(point.plan);
//   auto found = family.fastest(graph, other_costs, room_bytes);                   // 1 to 2 ms for 1,000 ops
//   if (!found) found = family.adapted(graph, other_costs, room_bytes);            // 50 ms
//   if (found && is_far_from_bound(graph, other_costs, *found)) { ... solve ... }  // 0.1 s, better beside the steps
//
// The family keeps few of all plans that were ever added, evenly spaced: the peaks between the plan without
// recomputation and what some op needs in any case are divided into cells of equal width, and the fastest of each cell
// stays. The plan without recomputation is always there, and so is the one of least peak. All of this is judged at the
// costs that the family was made with.
//
// Which plans are kept is a function of those costs and of the set of all plans added: neither their order nor how
// often each was added matters. Every answer is a function of the kept plans and of the question. The same family may
// be asked from several threads as long as none adds to it. docs/algorithms/family.md says what this loses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "reprise/costs.h"
#include "reprise/graph.h"
#include "reprise/plan.h"
#include "reprise/simulate.h"

namespace reprise {

class PlanFamily {
 public:
  static constexpr std::size_t kMostPlans = 48;
  static constexpr std::size_t kAdaptingWork = 4'000'000;  // reads: about 50 ms

  struct Answer {
    Plan plan{};
    Simulation simulation{};  // at the costs of the question

    friend bool operator==(const Answer&, const Answer&) = default;
  };

  // Has the plan without recomputation, and keeps at most `most_plans`, which is at least 3. Throws InputError if the
  // graph is forward-only (papers.h completes it) or the costs do not belong to it.
  PlanFamily(Graph graph, Costs costs, std::size_t most_plans = kMostPlans);

  // Returns whether the plan is kept now and was not before. Throws InputError, and adds nothing, if the plan breaks a
  // rule of validate, stores or fetches, or takes longer than fits into 64 bits.
  bool add(const Plan& plan);

  // The questions take the graph and the costs of one size. They throw InputError unless the graph has the structure of
  // the family's and the costs belong to it.

  // The fastest of the kept plans whose peak at these costs is within the budget; of several, one of least peak.
  [[nodiscard]] std::optional<Answer> fastest(const Graph& graph, const Costs& costs, std::int64_t budget_bytes) const;
  // The same, and what small changes to the plans nearest the budget lead to: a faster plan, or one that fits where
  // none of those kept does. Never slower than fastest(); nothing if no plan was found with so much work (solve.h),
  // though there may be one.
  [[nodiscard]] std::optional<Answer> adapted(const Graph& graph, const Costs& costs, std::int64_t budget_bytes,
                                              std::size_t work = kAdaptingWork) const;
  // The least peak of the kept plans at these costs. Other plans may need less.
  [[nodiscard]] std::int64_t smallest_peak_bytes(const Graph& graph, const Costs& costs) const;

  // By time at the family's own costs, then by peak there.
  [[nodiscard]] std::vector<Plan> plans() const;
  [[nodiscard]] std::size_t size() const;

  PlanFamily(PlanFamily&&) noexcept;
  PlanFamily& operator=(PlanFamily&&) noexcept;
  PlanFamily(const PlanFamily&) = delete;
  PlanFamily& operator=(const PlanFamily&) = delete;
  ~PlanFamily();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether a search may be worth its while: the plan takes more than a twentieth longer than lower_bound_ns says that a
// plan in its order must. Known at once if little is recomputed; otherwise it takes as long as lower_bound_ns.
[[nodiscard]] bool is_far_from_bound(const Graph& graph, const Costs& costs, const PlanFamily::Answer& answer);

}  // namespace reprise
