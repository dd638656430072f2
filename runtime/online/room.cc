// What the online mode does when memory is short, and what it says when that is not enough.
#include <ATen/Context.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "reprise/io.h"
#include "reprise/torch/errors.h"
#include "runtime/messages.h"
#include "runtime/online/evict.h"
#include "runtime/online/mode.h"
#include "runtime/online/thread.h"

namespace reprise::online {
namespace {

constexpr double kWarnAt = 2;  // times the calls themselves
constexpr int kPatience = 100;

}  // namespace

void Mode::make_room(std::int64_t requested_bytes, std::int64_t missing_bytes) {
  const std::int64_t begin_ns = now_ns();
  std::string refusal = take_away(requested_bytes, missing_bytes);
  // What calls of other threads hold may be free soon.
  for (int i = 0; i < kPatience && !refusal.empty() && running_ > (this_thread.depth > 0 ? 1 : 0); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    refusal = take_away(requested_bytes, missing_bytes);
  }
  this_thread.aside_ns += now_ns() - begin_ns;
  if (refusal.empty()) return;
  if (device_.is_cuda() && this_thread.depth > 0 && at::globalContext().benchmarkCuDNN()) {
    // cuDNN tries several ways, and goes on with those that have memory enough. If none has, the call says why.
    this_thread.refusal = refusal;
    TORCH_CHECK_WITH(OutOfMemoryError, false, refusal);
  }
  // Not under the lock: an error of another language may wait for threads that wait for it.
  refuse(refusal);
}

std::string Mode::take_away(std::int64_t requested_bytes, std::int64_t missing_bytes) {
  const Table::Lock lock(table_);
  const std::int64_t allocated = allocated_bytes();
  plain_peak_bytes_ = std::max(plain_peak_bytes_, allocated + requested_bytes + table_.evicted_bytes());
  if (allocated + requested_bytes <= options_.budget_bytes) return "";  // Another thread has freed something.
  Value* value = cheapest(table_, clock_ns(), follower_.next_call());
  const bool last_resort = value == nullptr || value->waits > 0;
  if (Value* orphan = last_resort ? largest_orphan(table_) : nullptr) {
    for (Value* dependent : held_dependents(*orphan)) table_.release(*dependent->cell, /*lost=*/false);
    return "";
  }
  if (value == nullptr || (value->waits > 0 && !restorer_.may_take_waiting())) {
    return full_message(requested_bytes, missing_bytes);
  }
  follower_.count_eviction(*value);
  keep_in_watermark(device_, value->bytes);
  table_.evict(*value);
  ++evictions_;
  return "";
}

void Mode::refuse(const std::string& message) const {
  if (options_.refuse) options_.refuse(message);
  throw BudgetExceeded(message);
}

std::string Mode::full_message(std::int64_t requested_bytes, std::int64_t missing_bytes) {
  std::int64_t read_bytes = 0;
  std::int64_t waiting_bytes = 0;
  std::int64_t kept_bytes = 0;
  for (const Value* value : table_.candidates()) {
    (value->locks > 0 ? read_bytes : waiting_bytes) += value->bytes;
  }
  for (const auto& [storage, root] : table_.roots()) kept_bytes += root->held.use_count() == 1 ? root->bytes : 0;
  const std::int64_t allocated = allocated_bytes();
  const std::string who = this_thread.op == nullptr ? "the program" : c10::toString(this_thread.op->operator_name());
  return "the budget of " + format_bytes(options_.budget_bytes) + " is too small by " + format_bytes(missing_bytes) +
         " here: " + who + " asks for " + format_bytes(requested_bytes) + " while " + format_bytes(allocated) +
         " are allocated. Of these, " + format_bytes(read_bytes) + " are read by calls that are being made, " +
         format_bytes(waiting_bytes) + " are waited for by calls that have to be made again, " +
         format_bytes(kept_bytes) + " are inputs of such calls that the program has dropped, and the other " +
         format_bytes(allocated - read_bytes - waiting_bytes - kept_bytes) +
         " cannot be computed again: parameters, gradients, the optimizer's state, inputs, results of operators that "
         "do "
         "not repeat, tensors whose address was taken. Up to here the program would have taken " +
         format_bytes(plain_peak_bytes_) + " without a budget; with that nothing has to be computed again";
}

void Mode::check_thrashing() {
  double times = 0;
  {
    const Table::Lock lock(table_);
    times = (restorer_.cost_ns() - step_recompute_ns_) / static_cast<double>(std::max<std::int64_t>(1, step_call_ns_));
    if (times > kWarnAt) thrashing_ = times;
  }
  if (options_.most_recomputation > 0 && times > options_.most_recomputation) {
    refuse(thrashing_message(times) + "; or allow more recomputation");
  }
}

// At the end of a step, when all of its calls are known.
void Mode::warn_of_thrashing() {
  const double times = std::exchange(thrashing_, 0);
  if (times > 0 && !std::exchange(warned_, true)) log_line(Severity::kWarning, thrashing_message(times));
}

std::string Mode::thrashing_message(double times) {
  StepLog log;
  std::int64_t plain_bytes = 0;
  {
    const Table::Lock lock(table_);
    log = follower_.known_log();
    plain_bytes = plain_peak_bytes_;
  }
  const double most = options_.most_recomputation > 0 ? std::min(kWarnAt, options_.most_recomputation) : kWarnAt;
  const std::optional<std::int64_t> enough =
      log.calls.empty() ? std::nullopt : least_budget(log, options_.budget_bytes, most);
  return "within the budget of " + format_bytes(options_.budget_bytes) + " recomputation takes " +
         std::to_string(static_cast<std::int64_t>(times)) + " times as long as the calls themselves. " +
         (enough ? "By a simulation of the calls, " + format_bytes(*enough) + " are enough; with " : "With ") +
         format_bytes(plain_bytes) + " nothing has to be computed again";
}

OnlineSummary Mode::summary() const {
  const std::int64_t peak = read_meter(device_).peak_bytes + unmetered_bytes_;
  const Follower::Counts& counts = follower_.counts();
  return {.calls = calls_,
          .evictions = evictions_,
          .repeated_calls = restorer_.calls(),
          .call_ns = call_ns_,
          .recompute_ns = static_cast<std::int64_t>(restorer_.cost_ns()),
          .peak_bytes = peak,
          .plain_peak_bytes = std::max(peak, plain_peak_bytes_),
          .steps = counts.steps,
          .followed_steps = counts.followed_steps,
          .departures = counts.departures,
          .scripts = static_cast<std::int64_t>(follower_.scripts()),
          .unplanned_evictions = counts.unplanned_evictions,
          .planning_seconds = counts.planning_seconds};
}

std::optional<OnlineStep> Mode::planned_step() const {
  const std::shared_ptr<const Script> script = follower_.latest_plan();
  if (script == nullptr) return std::nullopt;
  return OnlineStep{graph_of(script->log, script->grain_bytes).costed, script->plan};
}

}  // namespace reprise::online
