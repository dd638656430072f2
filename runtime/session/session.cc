#include "runtime/session/session.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "reprise/io.h"
#include "reprise/torch/errors.h"
#include "reprise/validate.h"
#include "runtime/device/meter.h"
#include "runtime/messages.h"
#include "runtime/program/program_queries.h"
#include "runtime/session/other_backward.h"

namespace reprise {
namespace {

// How many steps of each plan are measured action by action. The second does not contain what only the first step
// allocates.
constexpr int kTracedSteps = 2;

std::atomic<std::uint64_t> clock_of_calls{0};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

std::unique_ptr<ReplayPolicy> Session::policy_for(const CapturedStep& step) const {
  if (!has_cuda_graphs(step.program->device)) return nullptr;
  return std::make_unique<ReplayPolicy>(step.program, options_, around_.owned_inputs);
}

Session::Session(CapturedStep step, std::shared_ptr<const SessionOptions> options, Surroundings around)
    : step_(std::move(step)),
      options_(std::move(options)),
      around_(std::move(around)),
      graph_(make_graph(*step_.program)),
      resident_bytes_(resident_bytes(*step_.program)),
      own_tensors_(own_tensors(*step_.program)),
      ledger_(step_.program->device, around_.known_tensors, options_->metered),
      arena_(arena_of(*options_, step_.program->device)),
      host_(host_of(*options_, numbered(step_.program->device))),
      caller_(*step_.program, around_.caller_is_user),
      planning_(options_),
      replays_(policy_for(step_)) {
  install_meter();
  split_blocks_exactly(program().device);
}

Session::~Session() = default;

// -- Costs.

const Costs& Session::costs() {
  if (!priced_) price();
  return costs_;
}

void Session::price() {
  const auto begin = std::chrono::steady_clock::now();
  const auto family = family_now();
  std::optional<Costs> carried_over;
  if (family != nullptr) carried_over = form_.is_sliced() ? family->costs_of(program()) : family->price(program());
  if (carried_over) {
    costs_ = *std::move(carried_over);
    if (!form_.is_sliced()) caller_ = family->caller_of(program());
    profile_seconds_ += seconds_since(begin);
  } else if (options_->measure) {
    measure();
  } else {
    costs_ = with_roofline_times(bare_costs(program()), program());
  }
  caller_.apply(costs_);
  priced_ = true;
  if (around_.family != nullptr && family == nullptr) {
    around_.family->add_slices(form_.key, {step_.program, graph_, costs_, caller_, {}});
  }
}

void Session::measure() {
  const std::shared_ptr<Program> before = step_.program;
  CostedStep measured = form_.is_sliced() ? measure_step(step_, {}) : measure_step(step_, around_.capture_again);
  profile_seconds_ += measured.seconds;
  costs_ = std::move(measured.costs);
  if (measured.step.program == before) return;
  step_ = std::move(measured.step);
  graph_ = make_graph(program());
  resident_bytes_ = resident_bytes(program());
  own_tensors_ = own_tensors(program());
  caller_ = Caller(program(), around_.caller_is_user);
  scripts_ = std::make_shared<CallScripts>();
  replays_ = policy_for(step_);
}

// -- Memory.

std::int64_t Session::total_with(std::span<const at::Tensor> inputs) {
  std::vector<at::Tensor> there(inputs.begin(), inputs.end());
  there.insert(there.end(), own_tensors_.begin(), own_tensors_.end());
  return ledger_.total_bytes(there) + hidden_bytes(program().device);
}

std::int64_t Session::reserved_bytes() const {
  const std::int64_t future = around_.future_bytes ? around_.future_bytes() : 0;
  return options_->reserve_bytes + future + excess_bytes_;
}

// Bytes for the step itself, its inputs and parameters included.
std::optional<std::int64_t> Session::room_in(std::int64_t total) const {
  if (!options_->budget_bytes) return std::nullopt;
  return *options_->budget_bytes - (total - resident_bytes_) - reserved_bytes();
}

ReplayPolicy::Situation Session::situation(std::span<const at::Tensor> inputs) {
  const at::Device device = program().device;
  const std::int64_t counted = read_meter(device).allocated_bytes + hidden_bytes(device);
  return {inputs, costs_without_state(), caller_, total_with(inputs) - counted, reserved_bytes()};
}

// -- Planning.

// Puts what the search beside the steps has found into the place of the provisional plan.
void Session::take_found() {
  const auto plan = searched_for_.lock();
  const auto found = planning_.end(planned_step());
  if (plan == nullptr) return;
  plan->found.is_provisional = false;
  if (!found || !found->found()) return;
  plan->found.is_of_family = false;
  if (found->simulation.time_ns >= plan->found.simulation.time_ns) {
    plan->found.lower_bound_ns = found->lower_bound_ns;
    return;
  }
  log_line(Severity::kInfo, program().name + ": a longer search has brought recomputation from " +
                                recomputation_text(plan->found.simulation) + " down to " +
                                recomputation_text(found->simulation) + " of the step");
  if (const auto family = family_now()) family->add(found->plan);
  const auto better = put_to_work(*found, plan->room_bytes, plan->outside_bytes, plan->method);
  if (!fits_host(*better)) return;
  std::ranges::replace(plans_, plan, better);
  if (current_ == plan) current_ = better;
}

// One search at a time: another provisional plan has its turn when a step uses it.
void Session::search_beside(const std::shared_ptr<PlanAtWork>& plan) {
  if (planning_.is_going_on() || !plan->found.is_provisional) return;
  planning_.begin(planned_step(), *plan->room_bytes, plan->found);
  searched_for_ = plan;
}

void Session::settle() {
  if (current_ == nullptr || !current_->found.is_provisional) return;
  if (searched_for_.lock() != current_) planning_.stop();
  search_beside(current_);
  take_found();
}

std::shared_ptr<const PlanAtWork> Session::settled() {
  const std::lock_guard turn(options_->turn);
  settle();
  return current_;
}

std::shared_ptr<PlanAtWork> Session::fitting_plan(std::optional<std::int64_t> room) const {
  const PlanMethod method = method_now();
  std::shared_ptr<PlanAtWork> best;
  for (const auto& plan : plans_) {
    const Simulation& simulation = plan->found.simulation;
    if (room && simulation.peak_bytes > *room) continue;
    if (!plan_is_given_ && !is_plain(simulation) && (!room || plan->method != method)) continue;
    if (best == nullptr || simulation.time_ns < best->found.simulation.time_ns) best = plan;
  }
  const bool is_fastest = best != nullptr && is_plain(best->found.simulation) && !form_.is_sliced();
  if (best == nullptr || is_fastest || plan_is_given_) return best;
  const std::int64_t gained = room && best->room_bytes ? *room - *best->room_bytes : 0;
  const double slack = kSlack * static_cast<double>(options_->budget_bytes.value_or(0));
  return static_cast<double>(gained) <= slack ? best : nullptr;
}

// `total` is the memory in use on the device; it becomes less if CUDA graphs of other shapes are freed, and more if
// forms of the step are made.
std::shared_ptr<PlanAtWork> Session::plan_for(std::span<const at::Tensor> inputs, std::int64_t& total, Find find) {
  if (planning_.is_done()) take_found();
  if (around_.together != nullptr) {
    total = total_once_freed(inputs, total);
    return plan_together(total);
  }
  keep_to_options();
  link_up();
  meet_optimizer();
  if (around_.family != nullptr && !plan_is_given_) {
    const std::uint64_t version = around_.family->version();
    const auto may_be_beaten = [](const auto& plan) { return plan->found.is_of_family; };
    if (std::exchange(family_version_, version) != version) std::erase_if(plans_, may_be_beaten);
  }
  std::optional<std::int64_t> room = room_in(total);
  auto plan = fitting_plan(room);
  if (plan == nullptr) {
    const std::int64_t before = read_meter(program().device).allocated_bytes;
    FoundPlan found = find_in_any_form(find, room);
    // Forms in slices may have tensors of their own, which stay.
    const std::int64_t kept = others_.empty() ? 0 : read_meter(program().device).allocated_bytes - before;
    if (kept > 0 && room) {
      total += kept;
      room = room_in(total);
      if (!found.found() || found.simulation.peak_bytes > *room) found = find_in_any_form(find, room);
    }
    if (!found.found() && replays_ != nullptr && !inputs.empty() && hidden_bytes(program().device) > 0) {
      replays_->make_rivals_give_way();
      total = total_with(inputs);
      room = room_in(total);
      found = find_in_any_form(find, room);
    }
    room_bytes_ = room;
    if (!found.found()) refuse(found, total - resident_bytes_);
    plan = put_to_work(std::move(found), room, total - resident_bytes_, method_now());
    if (!fits_host(*plan)) return plan_for(inputs, total, find);
    // If more room did not give a faster plan, this is remembered.
    for (const auto& known : plans_) {
      const bool fits = !room || known->found.simulation.peak_bytes <= *room;
      if (fits && known->room_bytes && known->found.simulation.time_ns <= plan->found.simulation.time_ns) {
        known->room_bytes = room;
      }
    }
    plans_.push_back(plan);
    log_line(Severity::kInfo, program().name + ": " + plan->found.planner + " plan, peak " +
                                  format_bytes(plan->peak_bytes()) + ", recomputation " +
                                  recomputation_text(plan->found.simulation) + " of the step" +
                                  (form_.is_sliced() ? ", " + form_.words() : ""));
  }
  plan->outside_bytes = total - resident_bytes_;
  search_beside(plan);
  return plan;
}

std::shared_ptr<PlanAtWork> Session::put_to_work(FoundPlan found, std::optional<std::int64_t> room,
                                                 std::int64_t outside, PlanMethod method) {
  auto executor = std::make_shared<const Executor>(step_.program, found.plan);
  const std::int64_t backward = backward_peak(found.plan);
  const std::int64_t parked = parked_bytes(found.plan);
  return std::make_shared<PlanAtWork>(PlanAtWork{.found = std::move(found),
                                                 .executor = std::move(executor),
                                                 .room_bytes = room,
                                                 .outside_bytes = outside,
                                                 .backward_peak_bytes = backward,
                                                 .method = std::move(method),
                                                 .form = form_,
                                                 .parked_bytes = parked});
}

// Its peak is that of the pool and of what is allocated beside it.
std::shared_ptr<PlanAtWork> Session::plan_of(const Replay& replay, std::int64_t total,
                                             std::span<const at::Tensor> inputs) {
  if (replayed_of_.lock().get() != &replay) {
    replayed_ = std::make_shared<PlanAtWork>(PlanAtWork{.found = replay.found(), .executor = replay.executor()});
    replayed_->as_cuda_graphs = true;
    replayed_of_ = replays_->replay();
  }
  const std::int64_t peak = replays_->peak_bytes(situation(inputs));
  replayed_->outside_bytes = peak - replayed_->found.simulation.peak_bytes;
  replayed_->backward_peak_bytes = peak - (total - resident_bytes_);
  return replayed_;
}

std::int64_t Session::smallest_budget(const FoundPlan& found, std::int64_t outside) const {
  return found.smallest_budget_bytes + outside + reserved_bytes();
}

void Session::refuse(const FoundPlan& found, std::int64_t outside) const {
  const std::int64_t budget = options_->budget_bytes.value_or(0);
  const std::int64_t smallest = smallest_budget(found, outside);
  throw InfeasibleBudget("'" + program().name + "' cannot be trained inside " + format_bytes(budget) +
                             (priced_ ? ": the smallest budget found is " : ": this size needs at least ") +
                             format_bytes(smallest) + " (" + std::to_string(smallest) + " bytes), of which " +
                             format_bytes(outside) + " are allocated beside this step and " +
                             format_bytes(reserved_bytes()) +
                             " are reserved. Raise the budget or make the batch smaller",
                         budget, smallest);
}

std::size_t Session::caller_action(const Plan& plan) const {
  const OpId caller = program().caller_op();
  const auto found = std::ranges::find_if(
      plan.actions, [&](const Action& action) { return action.computes() && action.op() == caller; });
  return static_cast<std::size_t>(found - plan.actions.begin());
}

std::int64_t Session::backward_peak(const Plan& plan) const {
  const Timeline times = timeline(graph_, costs_, plan);
  const auto begin = static_cast<std::ptrdiff_t>(caller_action(plan));
  return *std::max_element(times.during_bytes.begin() + begin, times.during_bytes.end());
}

std::int64_t Session::outside_bytes(std::int64_t absent_bytes) const {
  const std::int64_t there = ledger_.expected_bytes(own_tensors_, absent_bytes) - arena_->block.free_bytes();
  return there + hidden_bytes(program().device) - resident_bytes_;
}

FoundPlan Session::plan_ahead(std::int64_t outside_bytes) {
  const std::lock_guard turn(options_->turn);
  const at::NoGradGuard no_grad;
  if (around_.together != nullptr) {
    throw Unsupported("'" + program().name + "' is planned at its calls, by all ranks together, and not ahead of them");
  }
  if (!priced_) price();
  std::int64_t total = outside_bytes + resident_bytes_;
  try {
    current_ = plan_for({}, total, &Planning::find);
    settle();
    current_->arena.reset();
    return current_->found;
  } catch (const InfeasibleBudget& refusal) {
    return {.smallest_budget_bytes = refusal.smallest_budget_bytes(), .message = refusal.what()};
  }
}

std::shared_ptr<PlanAtWork> Session::use(const Plan& plan, const std::string& planner, const std::string& source) {
  if (!priced_) price();
  const std::int64_t resident_before = resident_bytes_;
  if (!plan_is_given_) meet_optimizer();
  if (const auto wrong = validate(graph_, plan); wrong && !become_form_of(plan)) {
    throw InputError(source + ": this plan is not for " + program().name + " with these shapes: " + wrong->message);
  }
  check_copies(plan, source);
  FoundPlan found{
      .status = Status::kFeasible, .plan = plan, .planner = planner, .simulation = simulate(graph_, costs_, plan)};
  const std::int64_t outside = current_ == nullptr ? 0 : current_->outside_bytes + resident_before - resident_bytes_;
  auto made = put_to_work(std::move(found), std::nullopt, outside, method_now());
  use(made);
  return made;
}

void Session::use(std::shared_ptr<PlanAtWork> plan) {
  planning_.stop();
  become_form_of(*plan);
  replays_are_off_ = true;  // CUDA graphs have plans of their own
  plan->found.is_provisional = false;
  current_ = plan;
  plans_ = {std::move(plan)};
  plan_is_given_ = true;
}

void Session::drop_plans() {
  planning_.stop();
  plans_.clear();
  plan_is_given_ = false;
  allow_replays();
}

void Session::release() {
  drop_plans();
  current_.reset();
  release_replay();
  release_arena();
  host_->bring_back_state();
  host_->block.reset();
  // On the CPU this would wait for other processes, which may have ended.
  if (!program().device.is_cpu()) wait_for_abandoned();
}

void Session::release_replay() {
  if (replays_ != nullptr) replays_->release();
}

void Session::forget_replay() {
  if (replays_ != nullptr) replays_->forget();
}

// -- Running.

Session::Results Session::forward(std::span<const at::Tensor> inputs, RunningStep& running,
                                  const std::function<void()>& interrupted) {
  const std::lock_guard turn(options_->turn);
  const std::lock_guard arena_turn(arena_->turn);
  const at::NoGradGuard no_grad;
  const at::Device device = program().device;
  wait_for_abandoned();
  if (!priced_) price();
  bring_back_state(inputs);
  std::shared_ptr<Replay> replay;
  const bool may_replay = replays_ != nullptr && !replays_are_off_ && !wants_arena() && around_.together == nullptr;
  if (may_replay) replay = replays_->ready(situation(inputs));
  open_.reset();  // only the last forward is measured
  Ready ready = get_ready(replay.get(), inputs);
  const auto plan = ready.plan;
  current_ = plan;
  last_call_ = ++clock_of_calls;
  running = RunningStep{.number = last_call_, .turn = turn_};
  Open open{.number = last_call_, .plan = plan, .room_bytes = room_in(ready.total_bytes)};
  open.total_bytes = plan->arena ? total_with(inputs) : ready.total_bytes;
  const bool is_young = plan->measured_steps < kMeasuredSteps;
  const bool measuring = options_->watch && (device.is_cpu() || !around_.caller_is_user || is_young);
  if (measuring) reset_meter_peak(device);
  open.entry_bytes = read_meter(device).allocated_bytes;
  Results outputs;
  if (replay != nullptr) {
    outputs = replay->forward(inputs);
    running.replay = replay;
    running.replay_token = replay->open();
  } else {
    // In an arena nothing is allocated at an action.
    if (options_->watch && plan->measured_steps < kTracedSteps && !plan->arena) open.trace = std::make_shared<Trace>();
    running.executor = plan->executor;
    running.state.trace = open.trace;
    running.state.arena = std::move(ready.arena);
    running.state.copies = begin_copies(plan);
    running.state.parked = begin_parking(*plan, running.state.copies);
    if (replays_ != nullptr && open.trace == nullptr) replays_->pace().begin_step();
    const auto begin = std::chrono::steady_clock::now();
    outputs = plan->executor->forward(inputs, running.state, interrupted);
    if (replays_ != nullptr) replays_->pace().add_issue(seconds_since(begin));
  }
  if (measuring) {
    open.forward_peak_bytes = highest(read_meter(device).peak_bytes, open.trace);
    reset_meter_peak(device);
  }
  open.end_bytes = open.caller_peak_bytes = open.caller_end_bytes = read_meter(device).allocated_bytes;
  if (options_->watch) open_ = std::move(open);
  return outputs;
}

bool Session::go_on_as(Session& other, RunningStep& running) {
  (void)other.costs();  // its peak below is that for measured costs
  const std::lock_guard turn(options_->turn);
  const StepState& state = running.state;
  const bool is_plain = state.arena == nullptr && state.copies == nullptr && state.parked == nullptr;
  if (running.executor == nullptr || !is_plain || around_.together != nullptr) return false;
  const auto plan = with_backward_of(other.program(), *running.executor);
  if (!plan) return false;
  const bool is_latest = open_ && open_->number == running.number;
  if (is_latest && open_->room_bytes && other.backward_peak(*plan) > *open_->room_bytes) return false;
  auto executor = std::make_shared<const Executor>(other.step_.program, *plan);
  if (!executor->take_over(*running.executor, running.state)) return false;
  running.executor = std::move(executor);
  running.state.trace = nullptr;
  if (is_latest) {
    open_->is_as_planned = false;
    open_->trace = nullptr;
  }
  return true;
}

Session::Results Session::backward(std::vector<at::Tensor> seeds, RunningStep& running,
                                   const std::function<void()>& interrupted, const GradientTaker* taker) {
  const std::lock_guard turn(options_->turn);
  const std::lock_guard arena_turn(arena_->turn);
  const at::NoGradGuard no_grad;
  wait_for_abandoned();
  std::optional<Open> open;
  if (open_ && open_->number == running.number) open = std::exchange(open_, std::nullopt);
  if (open && running.state.parked != nullptr) open->returned_bytes = running.state.parked->returned_bytes();
  if (open && open->is_as_planned && around_.caller_is_user) meet_caller(*open, seeds);
  if (running.executor != nullptr) {
    const auto& optional = running.executor->seeds_to_leave_out();
    fill_seeds(running.executor->program(), {optional.begin(), optional.end()}, seeds);
  } else {
    fill_seeds(program(), caller_.optional_seeds(), seeds);
  }
  begin_backward_together(seeds, running);
  Results gradients;
  if (running.executor != nullptr) {
    const auto begin = std::chrono::steady_clock::now();
    gradients = running.executor->backward(seeds, running.state, interrupted, taker);
    if (replays_ != nullptr) {
      replays_->pace().add_issue(seconds_since(begin));
      replays_->pace().end_step();
      replays_->note_plain_step();
    }
  } else {
    running.replay_token.reset();
    const auto replay = running.replay.lock();
    if (replay == nullptr) {
      throw InputError(
          "this step no longer exists: the model was restored, compiled again or given a plan between its "
          "forward and its backward. Run backward first");
    }
    gradients = replay->backward(seeds);
  }
  if (open && open->forward_peak_bytes) note_peak(*open);
  return gradients;
}

}  // namespace reprise
