// What a session shares with those of the same step at other sizes.
#include <optional>
#include <utility>

#include "reprise/simulate.h"
#include "runtime/costs/cost_book.h"
#include "runtime/program/program_queries.h"
#include "runtime/session/forms.h"
#include "runtime/session/session.h"

namespace reprise {
namespace {

// A form of a step as it would be if it was made: nothing runs for it.
struct ExpectedForm {
  std::shared_ptr<const Program> program;
  Graph graph;
  Costs costs;
};

std::optional<ExpectedForm> expected_form(const Program& whole, FormKey key, SizeFamily& family, const Caller& caller) {
  const auto sliced = sliced_form(whole, key, SliceBits::kExpected);
  if (!sliced) return std::nullopt;
  ExpectedForm form{.program = sliced->program, .graph = make_graph(*sliced->program)};
  const auto known = family.in_slices(key);
  form.costs = known != nullptr && known->is_of(form.graph)
                   ? known->least_costs(*form.program)
                   : with_roofline_times(bare_costs(*form.program), *form.program);
  caller.at_size_of(*form.program).apply(form.costs);
  return form;
}

}  // namespace

void Session::measure_for(std::span<const at::Tensor> inputs) {
  const std::lock_guard turn(options_->turn);
  const at::NoGradGuard no_grad;
  if (priced_) return;
  if (around_.family != nullptr && options_->budget_bytes) refuse_if_hopeless(inputs);
  price();
}

void Session::refuse_if_hopeless(std::span<const at::Tensor> inputs) {
  costs_ = around_.family->least_costs(program());
  caller_ = around_.family->caller_of(program());
  caller_.apply(costs_);
  link_up();
  make_idle_arenas_give_way(*arena_);
  // CUDA graphs of other sizes would be freed.
  const std::int64_t total = total_with(inputs) - hidden_bytes(program().device) - arena_->block.free_bytes();
  room_bytes_ = room_in(total);
  const FoundPlan found = find_at_least(*room_bytes_);
  if (!found.found()) refuse(found, total - resident_bytes_);
}

// A plan of any form of the step for the costs that are certain. That of a form in slices is not for the graph of this
// session.
FoundPlan Session::find_at_least(std::int64_t room) {
  if (auto known = around_.family->find(graph_, costs_, room)) return *std::move(known);
  if (!may_help(sliceable_bytes(program(), options_->slices), room)) return planning_.find_soon(planned_step(), room);
  std::optional<ExpectedForm> form;  // nothing: whole
  FoundPlan answer;                  // once there is one, no other is looked for
  const auto find = [&](FoundPlan (Planning::*search)(const Planning::Step&, std::optional<std::int64_t>)) {
    return [&, search](std::int64_t bytes) {
      if (answer.found()) return answer;
      const Planning::Step step =
          form ? Planning::Step{*form->program, form->graph, form->costs, method_now()} : planned_step();
      FoundPlan found = (planning_.*search)(step, bytes);
      if (found.found()) answer = found;
      return found;
    };
  };
  return find_in_forms(
      {.in_slices = forms_in_slices(options_->slices),
       .enter =
           [&](FormKey key) {
             if (answer.found()) return false;
             if (key.is_sliced()) {
               form = expected_form(program(), key, *around_.family, caller_);
             } else {
               form.reset();
             }
             return form.has_value() == key.is_sliced();
           },
       .bytes = [&] { return form ? form_bytes(form->graph, form->costs) : form_bytes(graph_, costs_); },
       .find_at_once = find(&Planning::find_at_once),
       .find = find(&Planning::find)},
      room);
}

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
