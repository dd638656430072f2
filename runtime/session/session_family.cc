// What a session shares with those of the same step at other sizes.
#include <utility>

#include "runtime/session/session.h"

namespace reprise {

// Whose costs and plans are those of the form in which the step is now; nothing if it is measured and planned by
// itself.
std::shared_ptr<SizeFamily> Session::family_now() const {
  if (around_.family == nullptr || !form_.is_sliced()) return around_.family;
  auto sliced = around_.family->in_slices(form_.key);
  return sliced != nullptr && sliced->is_of(graph_) ? sliced : nullptr;
}

FoundPlan Session::find_plan(Find find, std::optional<std::int64_t> room) {
  const auto family = family_now();
  if (family == nullptr) return (planning_.*find)(planned_step(), room);
  if (!form_.is_sliced() || family->has_learned()) {
    if (auto known = family->find(graph_, costs_, room)) return *std::move(known);
    // Another form may have a plan at once; if none has, all forms are searched in full.
    if (form_.is_sliced() && find == &Planning::find_at_once) return {};
  }
  FoundPlan found = (planning_.*find)(planned_step(), room);
  family->learn(found);
  return found;
}

std::shared_ptr<SizeFamily> Session::make_family() {
  const std::lock_guard turn(options_->turn);
  const at::NoGradGuard no_grad;
  const FormKey key = form_.key;
  become({});
  if (!priced_) price();
  const CapturedStep& whole = whole_step();  // its state stays where it is in steps of other sizes
  std::vector<Plan> plans;
  if (program().num_state == 0) {
    for (const auto& plan : plans_) plans.push_back(plan->found.plan);
  }
  auto family = std::make_shared<SizeFamily>(SizeFamily::Profiled{.program = whole.program,
                                                                  .graph = make_graph(*whole.program),
                                                                  .costs = costs_without_state(),
                                                                  .caller = caller_,
                                                                  .plans = std::move(plans)},
                                             options_);
  if (others_.contains(key)) become(key);
  return family;
}

}  // namespace reprise
