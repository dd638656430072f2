#include "runtime/session/planning.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <utility>

#include "runtime/costs/cost_book.h"
#include "runtime/messages.h"

namespace reprise {
namespace {

// Adds the time of a block to a sum.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

FoundPlan Planning::find(const Step& step, std::optional<std::int64_t> room) {
  const Stopwatch stopwatch(seconds_);
  PlanBook book(step.graph, step.costs, step.method);
  FoundPlan found = book.find(room, options_->planning_seconds);
  if (found.found() || !options_->measure) return found;
  // How far a search for little memory gets depends on times, which are noisy, so the search is repeated with smooth
  // times.
  const Costs smooth = with_roofline_times(step.costs, step.program);
  PlanBook smooth_book(step.graph, smooth, step.method);
  (void)smooth_book.find(room, options_->planning_seconds);
  book.carry_over(smooth_book);
  return book.find(room, options_->planning_seconds);
}

FoundPlan Planning::find_soon(const Step& step, std::optional<std::int64_t> room) {
  if (!room || options_->planning_seconds <= options_->waiting_seconds) return find(step, room);
  FoundPlan found = find_at_once(step, room);
  return found.found() ? found : find(step, room);  // before it says no, it searches in full
}

FoundPlan Planning::find_at_once(const Step& step, std::optional<std::int64_t> room) {
  const Stopwatch stopwatch(seconds_);
  PlanBook book(step.graph, step.costs, step.method);
  FoundPlan found = book.find(room, std::min(options_->waiting_seconds, options_->planning_seconds));
  found.is_provisional = room && book.is_worth_a_search(*room, options_->planning_seconds);
  return found;
}

void Planning::begin(const Step& step, std::int64_t room, const FoundPlan& plan) {
  std::optional<PlanFamily::Answer> known;
  if (plan.is_of_family) known.emplace(plan.plan, plan.simulation);
  search_ = std::make_unique<BackgroundSearch>(step.graph, step.costs, step.method, room, options_->planning_seconds,
                                               std::move(known));
}

std::optional<FoundPlan> Planning::end(const Step& step) {
  const auto search = std::exchange(search_, nullptr);
  try {
    BackgroundSearch::Result result = search->wait();
    if (!result.solution) return std::nullopt;
    PlanBook book(step.graph, step.costs, search->method());
    book.add(search->budget_bytes(), *std::move(result.solution),
             result.is_complete ? std::nullopt : std::optional(search->seconds()));
    return book.find(search->budget_bytes(), search->seconds());
  } catch (const std::exception& error) {
    log_line(Severity::kWarning, step.program.name + ": the search for a better plan has failed: " + error.what());
    return std::nullopt;
  }
}

}  // namespace reprise
