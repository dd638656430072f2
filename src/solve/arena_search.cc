#include "solve/arena_search.h"

#include <algorithm>
#include <iterator>

namespace reprise::detail {

const Front::Point* ArenaSearch::first_that_fits(const Front& front, std::int64_t most_bytes) {
  lower_budget_bytes_ = 0;
  auto at = front.points().upper_bound(most_bytes);
  for (int tries = 0; tries < kTries && at != front.points().begin();) {
    const Front::Point& point = (--at)->second;
    if (!tried_.emplace(point.simulation.peak_bytes, point.simulation.time_ns).second) continue;
    if (fits(point)) return &point;
    ++tries;
  }
  return nullptr;
}

bool ArenaSearch::fits(const Front::Point& point) {
  Placement placement = place(problem_.step(), problem_.costs(), point.plan, options_);
  const std::int64_t outside = bytes_outside(problem_.step(), problem_.costs(), point.plan);
  const std::int64_t room = budget_bytes_ - outside;
  least_bytes_ = std::min(least_bytes_, placement.arena_bytes + outside);
  if (placement.arena_bytes <= room) {
    placement_ = std::move(placement);
    return true;
  }
  if (lower_budget_bytes_ == 0 && room > 0) {
    const auto arena = static_cast<double>(placement.arena_bytes);
    const double too_much = (arena - static_cast<double>(room)) / arena;
    lower_budget_bytes_ = budget_bytes_ - static_cast<std::int64_t>(static_cast<double>(room) * too_much) - 1;
  }
  return false;
}

}  // namespace reprise::detail
