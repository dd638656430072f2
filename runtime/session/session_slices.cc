// The step in slices: when a session tries that, and how it goes from one form of the step to another.
//
// The whole step comes first. Only where the budget cannot be kept with it, or costs much recomputation, is a chain of
// its calls cut, into more and more slices. What decides is the time of the plan that each form has for the same room.
#include <algorithm>
#include <array>
#include <utility>

#include "reprise/simulate.h"
#include "reprise/validate.h"
#include "runtime/costs/slice_check.h"
#include "runtime/messages.h"
#include "runtime/program/program_queries.h"
#include "runtime/session/session.h"

namespace reprise {
namespace {

constexpr std::array<std::int64_t, 5> kSlices{2, 4, 8, 16, 32};
constexpr std::int64_t kLeastPartBytes =
    1 << 17;                               // of the chain in one slice: with less, calls take longer than they save
constexpr double kDear = 0.03;             // recomputation, as a share of the step without it
constexpr std::size_t kCompared = 3;       // forms that are compared when one has a plan
constexpr std::int64_t kShareOfRoom = 16;  // a chain with less than this part of the room inside makes nothing cheaper

bool is_dear(const Simulation& found) {
  const auto once = static_cast<double>(found.time_ns - found.recompute_ns - found.wait_ns);
  return static_cast<double>(found.recompute_ns + found.wait_ns) > kDear * once;
}

}  // namespace

// Goes back to the whole step if it may not be in slices now, or not in those that were made.
void Session::keep_to_options() {
  if (plan_is_given_) return;
  const bool is_other = std::exchange(slices_made_, options_->slices) != options_->slices;
  if (is_other || !options_->budget_bytes || options_->slices == UseSlices::kOff) become(1);
  if (is_other) others_.clear();
}

// Makes the form with so many slices, if there is none yet. Returns whether there is one.
bool Session::make_slices(std::int64_t slices) {
  if (slices == form_.slices) return true;
  const auto [entry, is_new] = others_.try_emplace(slices);
  if (!is_new) return entry->second != nullptr;
  const auto sliced =
      options_->slices == UseSlices::kClose ? slice_closely(program(), slices) : slice_exactly(program(), slices);
  if (!sliced || sliced->slices != slices || sliced->chain.inside_bytes < slices * kLeastPartBytes) return false;
  CapturedStep step{.program = sliced->program, .alike = sliced->alike};
  Graph graph = make_graph(*step.program);
  std::vector<at::Tensor> own = own_tensors(*step.program);
  auto replays = policy_for(step);
  Caller caller(*step.program, around_.caller_is_user);
  entry->second = std::make_unique<StepForm>(StepForm{.step = std::move(step),
                                                      .name = {slices, words_of(*sliced->whole, sliced->chain)},
                                                      .inside_bytes = sliced->chain.inside_bytes,
                                                      .graph = std::move(graph),
                                                      .own_tensors = std::move(own),
                                                      .caller = std::move(caller),
                                                      .replays = std::move(replays)});
  return true;
}

// Goes on with the step in another form. What is known of the caller goes along. REQUIRES: the form was made.
void Session::become(std::int64_t slices) {
  if (slices == form_.slices) return;
  planning_.stop();
  open_.reset();
  replayed_.reset();
  replayed_of_.reset();
  auto next = std::move(others_.at(slices));
  others_.erase(slices);
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
  others_.emplace(next->name.slices, std::move(next));
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
  const std::int64_t before = form_.slices;
  become(1);
  if (!validate(graph_, plan)) return true;
  for (const std::int64_t slices : kSlices) {
    become(1);
    if (options_->slices == UseSlices::kOff || !make_slices(slices)) continue;
    become(slices);
    if (!validate(graph_, plan)) return true;
  }
  become(before);
  return false;
}

// Whether a chain in slices may help in this room at all.
bool Session::can_slice(std::int64_t room) const {
  if (options_->slices == UseSlices::kOff) return false;
  const Sums sums = options_->slices == UseSlices::kClose ? Sums::kInSlices : Sums::kWhole;
  const auto whole = prepare_for_slices(program());
  const auto chain = find_chain(*whole, sums);
  return chain && chain->inside_bytes * kShareOfRoom >= room && chain->inside_bytes >= 2 * kLeastPartBytes &&
         has_the_largest_call(*whole, *chain);
}

// Each form gets a short search. The longer one, beside the steps or for whoever waits for a plan, is for the form that
// is taken.
FoundPlan Session::find_in_any_form(Find find, std::optional<std::int64_t> room) {
  if (plan_is_given_) return find_plan(find, room);
  become(1);
  if (!room || !can_slice(*room)) return find_plan(find, room);
  std::int64_t lowest = most_of_one_op(graph_, costs_);
  std::vector<std::int64_t> refused;  // forms without a plan, that with the highest floor first
  const auto attempt = [&] { return *room < lowest ? FoundPlan{} : find_plan(&Planning::find_at_once, room); };
  FoundPlan best = attempt();
  if (best.found() && !is_dear(best.simulation)) return find_plan(find, room);
  if (!best.found()) refused.push_back(1);
  std::int64_t form = 1;  // of the best plan
  std::size_t compared = 0;
  for (const std::int64_t slices : kSlices) {
    become(1);
    if (!make_slices(slices)) continue;
    become(slices);
    const std::int64_t floor = most_of_one_op(graph_, costs_);
    if (floor >= lowest) continue;  // it is something else that takes the memory
    lowest = floor;
    FoundPlan found = attempt();
    if (!found.found()) {
      refused.push_back(slices);
    } else if (!best.found() || found.simulation.time_ns < best.simulation.time_ns) {
      best = std::move(found);
      form = slices;
    }
    if (best.found() && ++compared == kCompared) break;
  }
  if (!best.found()) return find_in_refused(find, *room, refused);
  become(form);
  return best;
}

// No form has a plan after a short search: before this is said, the forms get the search that was asked for.
FoundPlan Session::find_in_refused(Find find, std::int64_t room, const std::vector<std::int64_t>& forms) {
  FoundPlan smallest;
  for (auto form = forms.rbegin(); form != forms.rend(); ++form) {
    become(*form);
    if (smallest.smallest_budget_bytes > 0 && most_of_one_op(graph_, costs_) >= smallest.smallest_budget_bytes)
      continue;
    FoundPlan found = find_plan(find, room);
    if (found.found()) return found;
    if (smallest.smallest_budget_bytes == 0 || found.smallest_budget_bytes < smallest.smallest_budget_bytes) {
      smallest = std::move(found);
    }
  }
  become(1);
  return smallest;
}

}  // namespace reprise
