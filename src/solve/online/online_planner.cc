// `online`: plans that runs of the online method leave behind (online_run.h).
//
// Candidates are the courses, with ghosts first and without, at budgets between what the step takes as it is and what
// its largest op takes. Each course becomes a plan whose frees come from liveness: a value goes after its last read and
// not when memory gets short, so the peak is mostly below what the run counted. Between the least budget that works and
// the next one that does not, the interval is halved a few times. By formula, it is one run, with the budget as its own
// and the peak as it counts it.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "check.h"
#include "solve/online/online_run.h"
#include "solve/planner.h"
#include "solve/planner_knobs.h"

namespace reprise::detail {
namespace {

class Ladder {
 public:
  Ladder(const Problem& problem, const SolveOptions& options)
      : options_(options), step_(problem.step(), problem.costs()) {}

  [[nodiscard]] std::optional<OnlineCourse> at(std::int64_t budget_bytes) const {
    return OnlineRun(step_, {.budget_bytes = budget_bytes, .rules = knobs_of(options_).online}).course();
  }
  // With ghosts first and without.
  [[nodiscard]] std::vector<OnlineCourse> all_at(std::int64_t budget_bytes) const {
    return online_courses(step_, {.budget_bytes = budget_bytes, .rules = knobs_of(options_).online});
  }
  // With all the memory there can be, nothing runs again.
  [[nodiscard]] OnlineCourse plain() const {
    std::optional<OnlineCourse> found = at(Costs::kMaxTotalBytes);
    REPRISE_CHECK(found && found->recompute_ns == 0);
    return *std::move(found);
  }

  // Calls take(course) for each course of courses_at(budget), at budgets from large to small. Returns false if it was
  // asked to stop.
  template <typename CoursesAt, typename Take>
  bool descend(CoursesAt courses_at, Take take) {
    constexpr int kMostInVain = 3;
    constexpr int kHalvings = 6;
    const std::int64_t top = least_ = plain().peak_bytes;
    const std::int64_t floor = step_.floor_bytes();
    const auto rungs = static_cast<std::int64_t>(knobs_of(options_).candidates);
    std::int64_t refused = floor - 1;
    int in_vain = 0;
    for (std::int64_t rung = 1; rung <= rungs && in_vain < kMostInVain; ++rung) {
      const std::int64_t budget = top - (top - floor) / rungs * rung;
      if (asked_to_stop(options_)) return false;
      if (attempt(courses_at(budget), take)) {
        in_vain = 0;
      } else if (in_vain++ == 0) {
        refused = budget;
      }
    }
    if (in_vain == 0) refused = floor - 1;
    for (int i = 0; i < kHalvings && least_ - refused > 1; ++i) {
      const std::int64_t budget = refused + (least_ - refused) / 2;
      if (asked_to_stop(options_)) return false;
      if (!attempt(courses_at(budget), take)) refused = budget;
    }
    return true;
  }

 private:
  template <typename Take>
  bool attempt(const std::vector<OnlineCourse>& found, Take take) {
    for (const OnlineCourse& course : found) {
      least_ = std::min(least_, course.peak_bytes);
      take(course);
    }
    return !found.empty();
  }

  const SolveOptions& options_;
  OnlineView step_;
  std::int64_t least_ = 0;  // the least budget that worked
};

Formula formula_of(const OnlineCourse& course) {
  return {.overhead = course.recompute_ns, .peak_bytes = course.peak_bytes, .cached_bytes = 0, .blocks = 0};
}

void propose(const Problem& problem, const SolveOptions& options, Front& front, Solution& solution) {
  const auto add = [&](const OnlineCourse& course) { front.add(course.runs, formula_of(course)); };
  Ladder ladder(problem, options);
  if (!ladder.descend([&](std::int64_t budget) { return ladder.all_at(budget); }, add)) {
    stop(solution, "stopped before all budgets were tried");
  }
}

// One run at the budget. If that fails, or there is no budget, the least peak of any run.
std::optional<Plan> as_printed(const Problem& problem, const SolveOptions& options, Solution& solution) {
  Ladder ladder(problem, options);
  std::optional<OnlineCourse> found;
  if (options.budget_bytes) found = ladder.at(*options.budget_bytes);
  if (!found) {
    found = ladder.plain();
    const auto keep_least = [&](const OnlineCourse& course) {
      if (course.peak_bytes < found->peak_bytes) found = course;
    };
    const auto one_at = [&](std::int64_t budget) {
      const std::optional<OnlineCourse> course = ladder.at(budget);
      return course ? std::vector{*course} : std::vector<OnlineCourse>{};
    };
    if (!ladder.descend(one_at, keep_least)) {
      stop(solution, "stopped before all budgets were tried");
      return std::nullopt;
    }
  }
  if (!accept_by_formula(formula_of(*found), options, solution)) return std::nullopt;
  return problem.plan(found->runs);
}

}  // namespace

const Planner kOnlinePlanner{.name = "online", .propose = propose, .as_printed = as_printed};

}  // namespace reprise::detail
