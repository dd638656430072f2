// What the sessions of one step at several sizes share: costs that carry over from one size to another, what the caller
// needs, and plans.
//
// A session of a family neither profiles nor searches. Plans come from a search over all budgets at the size that was
// profiled; it goes on beside the steps, and a step waits for it as long as it would for a search of its own. Where
// none of the plans fits, the session searches, and what it finds joins the family.
//
// The step in slices is another step, with a family of its own for each form. The first session that is in
// such a form measures it and searches; others then do neither.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "reprise/plan_family.h"
#include "reprise/solve.h"
#include "runtime/costs/other_sizes.h"
#include "runtime/session/background_task.h"
#include "runtime/session/caller.h"
#include "runtime/session/forms.h"
#include "runtime/session/options.h"
#include "runtime/session/plan_book.h"

namespace reprise {

class SizeFamily {
 public:
  // Sizes whose sessions are kept; another one takes the place of the one that was used longest ago.
  static constexpr std::size_t kMostMembers = 256;

  // A step at the size where it was profiled, and the plans that it runs with.
  struct Profiled {
    std::shared_ptr<const Program> program;
    const Graph& graph;
    Costs costs;
    Caller caller;
    std::vector<Plan> plans;
  };
  enum class Search : std::uint8_t { kAllBudgets, kNone };
  // Begins the search, if there is to be one.
  SizeFamily(Profiled profiled, std::shared_ptr<const SessionOptions> options, Search search = Search::kAllBudgets);

  // Whether this graph is that of the step at some size.
  [[nodiscard]] bool is_of(const Graph& graph) const { return graph.same_structure(graph_); }
  // Nothing if the program is not the step at its size: results lie otherwise on the device.
  [[nodiscard]] std::optional<Costs> costs_of(const Program& program);
  // The same, but then throws Unsupported.
  [[nodiscard]] Costs price(const Program& program);
  // What is certain of the costs, without running anything: workspaces that would have to be measured are 0. Throws as
  // price() does, if it is known that it will.
  [[nodiscard]] Costs least_costs(const Program& program);
  // What the caller will need at this size, by what it needed where it was profiled.
  [[nodiscard]] Caller caller_of(const Program& program) const;

  // The fastest known plan of a step of this family; nothing if none fits.
  [[nodiscard]] std::optional<FoundPlan> find(const Graph& graph, const Costs& costs, std::optional<std::int64_t> room);
  // Whether a known plan takes no more at the size of the program. Nothing is measured for a size at which none does,
  // whatever workspaces are. Throws as price() does.
  [[nodiscard]] bool has_plan_within(std::int64_t room_bytes, const Program& program);
  void add(const Plan& plan);
  // Takes over what a session has searched for, whether there is a plan or not.
  void learn(const FoundPlan& found);
  [[nodiscard]] bool has_learned() const { return has_learned_; }
  // Another one after there are other plans.
  [[nodiscard]] std::uint64_t version();

  // The family of the step in this form; nothing if nobody has added what it begins with.
  [[nodiscard]] std::shared_ptr<SizeFamily> in_slices(FormKey key) const;
  void add_slices(FormKey key, Profiled profiled);

 private:
  void take_curve();
  [[nodiscard]] std::int64_t smallest_peak_bytes(const Program& program, Costs costs);

  std::shared_ptr<const SessionOptions> options_;
  Graph graph_;
  OtherSizes sizes_;
  Caller caller_;
  PlanFamily plans_;
  std::unique_ptr<BackgroundTask<Curve>> curve_;  // nothing: its plans are here
  std::uint64_t version_ = 0;
  bool has_learned_ = false;
  std::map<FormKey, std::shared_ptr<SizeFamily>> in_slices_;
};

}  // namespace reprise
