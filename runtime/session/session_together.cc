// Steps in which processes communicate: all of them come to the same plan before it runs.
//
// At every call each process says what room it has and what each known plan would leave of it. The least of these
// numbers decides, so all processes choose alike. If no known plan fits everywhere, the first process plans for the
// least room, and the others check its plan by simulating it on their own graph with their own costs.
#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "io/plan_json.h"
#include "reprise/error.h"
#include "reprise/io.h"
#include "reprise/torch/errors.h"
#include "reprise/validate.h"
#include "runtime/messages.h"
#include "runtime/program/collectives.h"
#include "runtime/session/session.h"

namespace reprise {
namespace {

constexpr std::int64_t kEndless = std::int64_t{1} << 60;  // room without a budget
constexpr std::size_t kMostPlans = 6;                     // that are known at once
constexpr int kAttempts = 4;                              // at a plan that fits in every process
constexpr const char* kInfeasible = "infeasible ";

// Equal in all processes for equal texts, and positive.
std::int64_t fingerprint(std::string_view text) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return static_cast<std::int64_t>(hash >> 2U);
}

std::string line_at(const std::string& text, std::size_t place) {
  const std::size_t before = place == 0 ? std::string::npos : text.rfind('\n', place - 1);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  const std::string line = text.substr(begin, text.find('\n', begin) - begin);
  return line.empty() ? "nothing" : line;
}

}  // namespace

// Throws in all processes.
void Session::tell_difference() const {
  const std::string mine = outline_of(program());
  const std::string first = around_.together->of_first(mine);
  const auto place = static_cast<std::size_t>(std::ranges::mismatch(mine, first).in1 - mine.begin());
  if (mine != first) {
    throw RanksDiffer("this process would run another step than rank 0, with which it communicates: " +
                      line_at(mine, place) + " where rank 0 has " + line_at(first, place) +
                      ". Call the same model with batches of the same shape on all ranks: pad them, or drop the last");
  }
  (void)around_.together->least({});
  throw InternalError("no process says in what its step differs");
}

std::int64_t Session::plans_fingerprint() const {
  std::string text = plan_is_given_ ? "given" : "";
  for (const auto& plan : plans_) {
    for (const Action& action : plan->found.plan.actions) detail::append_action(text, action);
    text += ';';
  }
  return fingerprint(text);
}

// The known plan that all processes use; nothing if none fits everywhere, or if there is so much more room now that
// another one may be faster. `spare` has what each plan leaves of the room.
std::shared_ptr<PlanAtWork> Session::known_together(std::int64_t room, std::span<const std::int64_t> spare) const {
  std::shared_ptr<PlanAtWork> best;
  for (std::size_t i = 0; i < plans_.size(); ++i) {
    if (spare[i] >= 0 && (best == nullptr || plans_[i]->of_first.time_ns < best->of_first.time_ns)) best = plans_[i];
  }
  if (best == nullptr || plan_is_given_ || best->of_first.recompute_ns + best->of_first.exposed_ns == 0) return best;
  const std::int64_t gained = room - best->room_bytes.value_or(kEndless);
  return static_cast<double>(gained) <= kSlack * static_cast<double>(room) ? best : nullptr;
}

// On the CPU, threads that communicate let go of memory after a call is over, on a busy machine much later. If the
// latest plan does not fit beside it, memory that was free at an earlier call is waited for.
std::int64_t Session::total_once_freed(std::span<const at::Tensor> inputs, std::int64_t total) {
  constexpr std::chrono::seconds kLongest{1};
  const auto end = std::chrono::steady_clock::now() + kLongest;
  const auto taken = [&] { return total + reserved_bytes(); };
  const auto fits = [&] {
    const auto room = room_in(total);
    return !room || (current_ != nullptr && current_->found.simulation.peak_bytes <= *room);
  };
  while (program().device.is_cpu() && taken() > least_taken_bytes_ && !fits() &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    total = total_with(inputs);
  }
  least_taken_bytes_ = std::min(least_taken_bytes_, taken());
  return total;
}

std::shared_ptr<PlanAtWork> Session::plan_together(std::int64_t total) {
  const Together& together = *around_.together;
  const std::int64_t mine = room_in(total).value_or(kEndless);
  if (outlined_ != step_.program) outline_ = fingerprint(outline_of(program()));
  outlined_ = step_.program;
  const std::int64_t plans = plans_fingerprint();
  const std::array<std::int64_t, 7> of_step{
      outline_, -outline_, plans, -plans, wants_new_plans_ ? -1 : 0, plan_is_given_ ? -1 : 0, mine};
  static_assert(of_step.size() + kMostPlans <= Together::kMostNumbers);
  Together::Numbers said(of_step.begin(), of_step.end());
  for (std::size_t i = 0; i < kMostPlans; ++i) {
    said.push_back(i < plans_.size() ? mine - plans_[i]->found.simulation.peak_bytes : 0);
  }
  const Together::Numbers least = together.least(std::move(said));
  if (least[0] != -least[1]) tell_difference();
  const bool plans_differ = least[2] != -least[3];
  if (plans_differ && least[5] < 0) {
    throw RanksDiffer("the ranks were given different plans: give the same one to all of them, or none");
  }
  wants_new_plans_ = false;
  if (plans_differ || least[4] < 0) plans_.clear();
  const std::int64_t room = least[6];
  auto plan = known_together(room, std::span(least).subspan(of_step.size()));
  room_bytes_ = room < kEndless ? std::optional(room) : std::nullopt;
  if (plan == nullptr) plan = search_together(room, mine, total - resident_bytes_);
  plan->outside_bytes = total - resident_bytes_;
  turn_ = together.settled();
  return plan;
}

// What the first process finds, in all of them. The simulation is that of the first process.
FoundPlan Session::found_by_first(std::optional<std::int64_t> room) {
  const Together& together = *around_.together;
  std::string text;
  std::exception_ptr failure;
  if (together.is_first) {
    try {
      const FoundPlan found = planning_.find(planned_step(), room);
      text = found.found() ? format_plan({.graph = program().name,
                                          .ops = graph_.num_ops(),
                                          .values = graph_.num_values(),
                                          .planner = found.planner,
                                          .budget_bytes = std::max<std::int64_t>(0, room.value_or(0)),
                                          .simulation = found.simulation,
                                          .plan = found.plan})
                           : kInfeasible + std::to_string(found.smallest_budget_bytes);
    } catch (...) {
      failure = std::current_exception();
    }
  }
  text = together.of_first(std::move(text));
  if (failure) std::rethrow_exception(failure);
  if (text.empty()) (void)together.least({});  // the first process says why
  const std::string infeasible = kInfeasible;
  if (text.starts_with(infeasible)) return {.smallest_budget_bytes = std::stoll(text.substr(infeasible.size()))};
  PlanFile file = parse_plan(text, "the plan of rank 0");
  return {.status = Status::kFeasible,
          .plan = std::move(file.plan),
          .planner = std::move(file.planner),
          .simulation = file.simulation};
}

// A process that has less room than its plan needs throws, and with it all others.
void Session::refuse_together(const FoundPlan& found, std::int64_t outside, bool is_tightest) const {
  if (is_tightest) refuse(found, outside);
  (void)around_.together->least({});
  throw InternalError("no process says why there is no plan");
}

std::shared_ptr<PlanAtWork> Session::search_together(std::int64_t room, std::int64_t mine, std::int64_t outside) {
  std::int64_t wanted = room;
  for (int attempt = 1;; ++attempt) {
    FoundPlan found = found_by_first(room < kEndless ? std::optional(wanted) : std::nullopt);
    if (!found.found()) refuse_together(found, outside, mine == room);
    if (const auto wrong = validate(graph_, found.plan)) {
      throw InternalError("the plan of rank 0 is not for this step: " + wrong->message);
    }
    const Simulation of_first = std::exchange(found.simulation, simulate(graph_, costs_, found.plan));
    const std::int64_t here = mine - found.simulation.peak_bytes;
    const std::int64_t spare = around_.together->least({here})[0];
    if (spare < 0 && attempt == kAttempts) {
      refuse_together({.smallest_budget_bytes = found.simulation.peak_bytes}, outside, here == spare);
    }
    if (spare < 0) {
      wanted = std::min(wanted, of_first.peak_bytes) + spare;
      continue;
    }
    const auto plan =
        put_to_work(std::move(found), room < kEndless ? std::optional(room) : std::nullopt, outside, method_now());
    plan->of_first = of_first;
    if (plans_.size() == kMostPlans) plans_.erase(plans_.begin());
    for (const auto& known : plans_) {  // if more room did not give a faster plan, this is remembered
      const bool fits = known->of_first.peak_bytes <= room;
      if (fits && known->room_bytes && known->of_first.time_ns <= of_first.time_ns)
        known->room_bytes = plan->room_bytes;
    }
    plans_.push_back(plan);
    log_line(Severity::kInfo, program().name + ": " + plan->found.planner + " plan for all ranks, peak " +
                                  format_bytes(plan->found.simulation.peak_bytes + outside) + ", recomputation " +
                                  recomputation_text(plan->found.simulation) + " of the step");
    return plan;
  }
}

// A process that cannot go on says so before others wait for what it would have sent.
void Session::begin_backward_together(std::span<const at::Tensor> seeds, const RunningStep& running) const {
  if (around_.together == nullptr) return;
  running.executor->check_backward(seeds, running.state);
  const Together::Numbers least = around_.together->least({running.turn, -running.turn});
  if (least[0] != -least[1]) {
    throw RanksDiffer("the ranks run backward of different calls of '" + program().name +
                      "': call the model and backward() in the same order on all of them");
  }
  (void)around_.together->settled();
}

}  // namespace reprise
