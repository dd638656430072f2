// How a session's steps let the optimizer's state wait in the host's memory: the state is a part of the step as soon as
// there is some (passes/park.h), and whoever looks for a plan decides about it as about any other value.
#include <set>
#include <utility>

#include "reprise/io.h"
#include "reprise/torch/errors.h"
#include "runtime/device/meter.h"
#include "runtime/program/passes/park.h"
#include "runtime/program/program_queries.h"
#include "runtime/session/session.h"

namespace reprise {
namespace {

constexpr std::int64_t kLeastPart = 512;  // smaller parts of the state than one in so many stay where they are

}  // namespace

// The state that a step may store. A tensor whose storage somebody else holds too would stay in memory.
std::vector<at::Tensor> Session::parkable() const {
  const bool alone = around_.family == nullptr && around_.together == nullptr;
  if (!options_->parks() || !around_.optimizer_state || !alone) return {};
  if (options_->cuda_graphs == CudaGraphs::kOn || wants_arena()) return {};
  const at::Device device = numbered(program().device);
  std::vector<at::Tensor> found;
  std::set<const void*> known;
  std::int64_t total = 0;
  for (at::Tensor& tensor : around_.optimizer_state()) {
    if (!tensor.defined() || !tensor.has_storage() || tensor.device() != device || tensor.is_inference()) continue;
    if (tensor.storage().use_count() != 1 || !tensor.storage().resizable()) continue;
    if (tensor.storage().data() == nullptr || !known.insert(tensor.storage().data()).second) continue;
    total += static_cast<std::int64_t>(tensor.storage().nbytes());
    found.push_back(std::move(tensor));
  }
  std::erase_if(found, [&](const at::Tensor& tensor) {
    return static_cast<std::int64_t>(tensor.storage().nbytes()) * kLeastPart < total;
  });
  return found;
}

// Makes the state a part of the step as it is now. The form of the step becomes another one, with plans of its own.
void Session::meet_optimizer() {
  const bool is_limited = options_->budget_bytes || plan_is_given_;
  const std::vector<at::Tensor> state = is_limited ? parkable() : std::vector<at::Tensor>();
  if (has_state(program(), state)) return;
  if (plan_is_given_) {
    if (program().num_state == 0) return;
    throw InputError("the plan that was given for '" + program().name +
                     "' stores state of the optimizer, which is no longer what it was: drop the plan");
  }
  set_state(state);
}

void Session::set_state(std::span<const at::Tensor> state) {
  become({});
  planning_.stop();
  open_.reset();
  others_.clear();
  plans_.clear();
  if (parking_.bare == nullptr) parking_.bare = std::make_unique<CapturedStep>(step_);
  const Program& bare = *parking_.bare->program;
  step_.program = state.empty() ? parking_.bare->program : with_state(bare, state);
  graph_ = make_graph(program());
  costs_.value_bytes.resize(bare.values.size());
  resident_bytes_ = resident_bytes(bare);
  for (std::size_t i = bare.values.size(); i < program().values.size(); ++i) {
    costs_.value_bytes.push_back(program().values[i].bytes);
    resident_bytes_ += program().values[i].bytes;
  }
}

// Goes on in the form that a plan was made for, with the optimizer's state as a part of the step or without.
void Session::become_form_of(const PlanAtWork& plan) {
  const Program& planned = plan.executor->program();
  const std::vector<at::Tensor> state = planned.num_state == 0 ? std::vector<at::Tensor>() : parkable();
  if (!has_state(planned, state)) {
    throw InputError("the plan that was given for '" + program().name +
                     "' stores state of the optimizer, which is no longer what it was, or may not be stored now");
  }
  if (!has_state(program(), state)) set_state(state);
  become({});
  if (!make_form(plan.form.key)) throw InternalError("a plan is for a form that '" + program().name + "' has not");
  become(plan.form.key);
}

// The costs of the step without the optimizer's state, which CUDA graphs leave where it is.
const Costs& Session::costs_without_state() {
  if (parking_.bare == nullptr || form_.is_sliced()) return costs_;
  parking_.bare_costs = costs_;
  parking_.bare_costs.value_bytes.resize(parking_.bare->program->values.size());
  return parking_.bare_costs;
}

// Before a step begins, for steps whose backward has not run, or which ended when there was no room. The budget holds
// for what comes back, too.
void Session::bring_back_state(std::span<const at::Tensor> inputs) {
  const std::int64_t away = host_->away_bytes();
  if (away > 0 && options_->budget_bytes) {
    const std::int64_t needed = total_with(inputs) + away + options_->reserve_bytes;
    if (needed > *options_->budget_bytes) {
      throw InfeasibleBudget("'" + program().name + "' cannot begin a step inside " +
                                 format_bytes(*options_->budget_bytes) + ": " + format_bytes(away) +
                                 " of the optimizer's state wait in the host's memory for another step, and there is "
                                 "no room to bring them back. Run the backward of that step, or drop its result, first",
                             *options_->budget_bytes, needed);
    }
  }
  host_->bring_back_state();
}

// The state for a step that begins with this plan, if it stores any.
std::shared_ptr<ParkedState> Session::begin_parking(const PlanAtWork& plan, const std::shared_ptr<StepCopies>& copies) {
  if (plan.parked_bytes == 0) return nullptr;
  auto parked = std::make_shared<ParkedState>(program(), parkable(), copies);
  host_->park(parked);
  return parked;
}

std::int64_t Session::parked_bytes(const Plan& plan) const {
  std::vector<std::int64_t> bytes(graph_.num_values(), 0);
  for (const ValueId value : state_values(program())) bytes[index(value)] = program().values[index(value)].bytes;
  std::int64_t parked = 0;
  for (const Action& action : plan.actions) {
    if (action.stores()) parked += bytes[index(action.value())];
  }
  return parked;
}

}  // namespace reprise
