// The step in slices: how a session goes from one form of the step to another.
#include <utility>

#include "reprise/simulate.h"
#include "reprise/validate.h"
#include "runtime/program/program_queries.h"
#include "runtime/session/forms.h"
#include "runtime/session/session.h"

namespace reprise {

// Goes back to the whole step if it may not be in slices now, or not in those that were made.
void Session::keep_to_options() {
  if (plan_is_given_) return;
  const bool is_other = std::exchange(slices_made_, options_->slices) != options_->slices;
  if (is_other || !options_->budget_bytes || options_->slices == UseSlices::kOff) become({});
  if (is_other) others_.clear();
}

// Makes a form, if it is not there yet. Returns whether it is.
bool Session::make_form(FormKey key) {
  if (key == form_.key) return true;
  const auto [entry, is_new] = others_.try_emplace(key);
  if (!is_new) return entry->second != nullptr;
  const auto sliced = sliced_form(program(), key, SliceBits::kCompared);
  if (!sliced) return false;
  CapturedStep step{.program = sliced->program, .alike = sliced->alike};
  Graph graph = make_graph(*step.program);
  std::vector<at::Tensor> own = own_tensors(*step.program);
  auto replays = policy_for(step);
  Caller caller(*step.program, around_.caller_is_user);
  entry->second = std::make_unique<StepForm>(StepForm{.step = std::move(step),
                                                      .name = {key, words_of(*sliced->whole, sliced->chain)},
                                                      .inside_bytes = sliced->chain.inside_bytes,
                                                      .graph = std::move(graph),
                                                      .own_tensors = std::move(own),
                                                      .caller = std::move(caller),
                                                      .replays = std::move(replays)});
  return true;
}

// Goes on with the step in another form. What is known of the caller goes along. REQUIRES: the form was made.
void Session::become(FormKey key) {
  if (key == form_.key) return;
  planning_.stop();
  open_.reset();
  replayed_.reset();
  replayed_of_.reset();
  auto next = std::move(others_.at(key));
  others_.erase(key);
  const Caller before = caller_;
  const Caller last_here = next->caller;
  std::swap(step_, next->step);
  std::swap(form_, next->name);
  std::swap(graph_, next->graph);
  std::swap(costs_, next->costs);
  std::swap(priced_, next->priced);
  std::swap(own_tensors_, next->own_tensors);
  std::swap(replays_, next->replays);
  std::swap(scripts_, next->scripts);
  std::swap(plans_, next->plans);
  next->caller = before;
  others_.emplace(next->name.key, std::move(next));
  const Caller known = before.at_size_of(program());
  const bool is_new = !priced_ || known.workspace_bytes() != last_here.workspace_bytes() ||
                      known.kept_bytes() != last_here.kept_bytes() || known.absent_seeds() != last_here.absent_seeds();
  if (is_new) plans_.clear();
  caller_ = known;
  if (!priced_) return price();
  caller_.apply(costs_);
}

// Goes on in the form that the plan is for, if there is one.
bool Session::become_form_of(const Plan& plan) {
  const FormKey before = form_.key;
  become({});
  if (!validate(graph_, plan)) return true;
  for (const FormKey& key : forms_in_slices(options_->slices)) {
    become({});
    if (!make_form(key)) continue;
    become(key);
    if (!validate(graph_, plan)) return true;
  }
  become(before);
  return false;
}

FoundPlan Session::find_in_any_form(Find find, std::optional<std::int64_t> room) {
  if (plan_is_given_) return find_plan(find, room);
  become({});
  if (!room) return find_plan(find, room);
  std::optional<FoundPlan> known;  // of the whole step
  if (around_.family != nullptr) known = around_.family->find(graph_, costs_, room);
  if (known && !is_dear(known->simulation)) return *std::move(known);
  if (!may_help(sliceable_bytes(program(), options_->slices), *room)) {
    return known ? *std::move(known) : find_plan(find, room);
  }
  const auto enter = [this](FormKey key) {
    become({});
    if (!make_form(key)) return false;
    become(key);
    return true;
  };
  return find_in_forms({.in_slices = forms_in_slices(options_->slices),
                        .enter = enter,
                        .bytes = [this] { return form_bytes(graph_, costs_); },
                        .find_at_once =
                            [&](std::int64_t bytes) {
                              return known && !form_.is_sliced() ? *known : find_plan(&Planning::find_at_once, bytes);
                            },
                        .find = [this, find](std::int64_t bytes) { return find_plan(find, bytes); }},
                       *room);
}

}  // namespace reprise
