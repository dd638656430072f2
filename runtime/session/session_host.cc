// How a session's steps use the host's memory: one block for each model and device, which one step at a time may use.
#include <algorithm>
#include <cmath>
#include <string>

#include "reprise/io.h"
#include "reprise/torch/errors.h"
#include "runtime/costs/link.h"
#include "runtime/messages.h"
#include "runtime/session/session.h"

namespace reprise {
namespace {

// Steps of a plan whose copies are timed; the last of them teaches what the link is like while steps use it.
constexpr int kTimedSteps = 4;
// The link is slower than planned if steps wait longer for copies than planned by more than this share of the step.
constexpr double kTooLong = 0.01;
// If they hardly wait, and so much of what was seen is so much more than what was planned for, it is worth a plan.
constexpr double kHardly = 0.002;
constexpr double kUsedOfSeen = 0.95;
constexpr double kWorthwhile = 1.1;

// What a direction carries, or nothing if nothing was copied.
std::optional<std::int64_t> rate_of(std::int64_t bytes, std::int64_t ns) {
  if (ns == 0) return std::nullopt;
  return std::max<std::int64_t>(1, std::llround(1e9 / static_cast<double>(ns) * static_cast<double>(bytes)));
}

std::string rates_of(const Link& link) {
  return format_bytes(link.down_bytes_per_s) + "/s down and " + format_bytes(link.up_bytes_per_s) + "/s up";
}

}  // namespace

void Session::link_up() {
  if (options_->host_budget_bytes == 0) return;
  if (costs_.link) return learn_from_copies();
  const at::Device device = program().device;
  if (!has_host_link(device)) {
    throw InputError("host_budget needs an accelerator: the model is on " + device.str() +
                     ", where the budget is the host's memory already. Leave host_budget out");
  }
  costs_.link = planned_link(link_of(device));
}

// Reads the times of a step that has ended. Plans are made again for the rates that were seen: once if the link is
// slower than planned, and before that once if it is much faster.
void Session::learn_from_copies() {
  const auto times = timed_.log == nullptr ? std::nullopt : timed_.log->read();
  if (!times) return;
  const auto plan = timed_.plan.lock();
  timed_.log.reset();
  if (plan == nullptr) return;
  plan->measured_wait_ns = times->wait_ns;
  const bool is_settled = ++plan->timed_steps >= kTimedSteps;
  if (!is_settled || plan_is_given_) return;
  const std::optional<Link> seen = link_as_seen(*times, plan->found.simulation);
  if (!seen) return;
  log_line(Severity::kInfo, program().name + ": steps wait " + std::to_string(times->wait_ns / 1000) +
                                " us for copies, " + std::to_string(plan->found.simulation.wait_ns / 1000) +
                                " us were planned; they are planned again for a link of " + rates_of(*seen));
  costs_.link = seen;
  planning_.stop();
  std::erase_if(plans_, [](const auto& known) { return known->executor->host_bytes() > 0; });
}

// The link that plans should be made for instead of the one they were made for, if there is one.
std::optional<Link> Session::link_as_seen(const CopyTimes& times, const Simulation& planned) {
  const auto excess = static_cast<double>(times.wait_ns - planned.wait_ns);
  const auto share = excess / static_cast<double>(std::max<std::int64_t>(1, planned.time_ns));
  const auto down = rate_of(times.down_bytes, times.down_ns), up = rate_of(times.up_bytes, times.up_ns);
  const Link& now = *costs_.link;
  Link seen = now;
  if (share > kTooLong && lesson_ != LinkLesson::kSlower) {
    const Link first = planned_link(link_of(program().device));
    seen.down_bytes_per_s = std::min(down.value_or(now.down_bytes_per_s), first.down_bytes_per_s);
    seen.up_bytes_per_s = std::min(up.value_or(now.up_bytes_per_s), first.up_bytes_per_s);
    if (seen.down_bytes_per_s >= now.down_bytes_per_s && seen.up_bytes_per_s >= now.up_bytes_per_s) return std::nullopt;
    lesson_ = LinkLesson::kSlower;
    return seen;
  }
  if (share > kHardly || lesson_ != LinkLesson::kNone || !down || !up) return std::nullopt;
  const auto used = [](std::int64_t rate) { return std::llround(kUsedOfSeen * static_cast<double>(rate)); };
  seen.down_bytes_per_s = std::max<std::int64_t>(used(*down), now.down_bytes_per_s);
  seen.up_bytes_per_s = std::max<std::int64_t>(used(*up), now.up_bytes_per_s);
  const auto gain = [](std::int64_t then, std::int64_t before) {
    return static_cast<double>(then) / static_cast<double>(before);
  };
  const double most =
      std::max(gain(seen.down_bytes_per_s, now.down_bytes_per_s), gain(seen.up_bytes_per_s, now.up_bytes_per_s));
  if (most < kWorthwhile) return std::nullopt;
  lesson_ = LinkLesson::kFaster;
  return seen;
}

// A step whose backward has not run has the block; others are planned without.
PlanMethod Session::method_now() const {
  if (!host_->open.expired()) return options_->planner;
  return {options_->planner, std::max<std::int64_t>(0, options_->host_budget_bytes - unfilled_bytes_)};
}

// Whether the block of the plan is within the host's budget. If it is not, because something between the values in it
// is left empty, later plans get less.
bool Session::fits_host(const PlanAtWork& plan) {
  const std::int64_t excess = plan.executor->host_bytes() - options_->host_budget_bytes;
  if (excess <= 0 || plan_is_given_) return true;
  unfilled_bytes_ += excess;
  return false;
}

std::vector<PlanMethod> Session::methods() const {
  std::vector<PlanMethod> all{options_->planner};
  if (options_->host_budget_bytes > 0) all.emplace_back(options_->planner, options_->host_budget_bytes);
  return all;
}

void Session::check_copies(const Plan& plan, const std::string& source) {
  if (!copies(plan)) return;
  if (options_->host_budget_bytes == 0) {
    throw InputError(source + ": this plan stores values in the host's memory: give a host_budget");
  }
  link_up();
  const std::int64_t bytes = simulate(graph_, costs_, plan).host_peak_bytes;
  if (bytes <= options_->host_budget_bytes) return;
  throw InputError(source + ": this plan stores " + format_bytes(bytes) +
                   " in the host's memory, above host_budget=" + format_bytes(options_->host_budget_bytes));
}

// What the step needs to copy, if its plan does.
std::shared_ptr<StepCopies> Session::begin_copies(const std::shared_ptr<PlanAtWork>& plan) {
  const std::int64_t bytes = plan->executor->host_bytes();
  if (bytes == 0) return nullptr;
  if (!host_->open.expired()) {
    throw InputError("the plan that was given for '" + program().name +
                     "' stores values in the host's memory, which another step still uses: run its backward first");
  }
  if (host_->block == nullptr || host_->block->bytes() < bytes) {
    host_->block.reset();
    log_line(Severity::kInfo, program().name + ": pinning " + format_bytes(bytes) + " of the host's memory");
    host_->block = std::make_shared<HostBlock>(program().device, bytes);
  }
  if (timed_.log != nullptr && timed_.log->is_empty()) timed_.log.reset();  // that step did not come far
  if (timed_.log == nullptr && plan->timed_steps < kTimedSteps) timed_ = {std::make_shared<CopyLog>(), plan};
  const bool is_timed = timed_.log != nullptr && !timed_.has_begun;
  timed_.has_begun = true;
  auto copies = std::make_shared<StepCopies>(make_host_link(host_->block, is_timed ? timed_.log : nullptr));
  host_->open = copies;
  return copies;
}

}  // namespace reprise
