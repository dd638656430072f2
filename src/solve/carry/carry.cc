#include "solve/carry/carry.h"

#include <algorithm>
#include <cmath>

#include "solve/carry/placing.h"
#include "solve/planner.h"

namespace reprise::detail {
namespace {

// Below this, a copy is mostly latency; but on a small step everything may be carried.
std::int64_t least_carried_bytes(std::int64_t peak_bytes) {
  constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;
  return std::min(std::max(kMebibyte, peak_bytes / 5'000), peak_bytes / 100);
}

}  // namespace

CarrySearch::CarrySearch(const Problem& problem, const SolveOptions& options, Front& front)
    : problem_(problem), options_(options), front_(front) {
  // The step as it is has the largest peak in the front.
  least_bytes_ = least_carried_bytes(front.points().rbegin()->first);
  find_paces();
}

// A pace of one carries the whole peak within the time of the step.
void CarrySearch::find_paces() {
  constexpr int kSlowest = -14, kFastest = 6;  // in half powers of two
  constexpr std::int64_t kLatency = 10'000;
  const Front::Point& plain = front_.points().rbegin()->second;
  const double one = 1e9 * static_cast<double>(std::max<std::int64_t>(1, plain.simulation.peak_bytes)) /
                     static_cast<double>(std::max<std::int64_t>(1, plain.simulation.time_ns));
  const Link& link = *problem_.costs().link;
  const auto most = 2 * static_cast<double>(std::max(link.down_bytes_per_s, link.up_bytes_per_s));
  for (int i = kSlowest; i <= kFastest; ++i) {
    const double rate = std::clamp(one * std::exp2(.5 * i), 1.0, 1e18);
    if (rate > most && !paces_.empty()) break;
    const auto bytes_per_s = static_cast<std::int64_t>(rate);
    paces_.push_back({.down_bytes_per_s = bytes_per_s,
                      .up_bytes_per_s = bytes_per_s,
                      .latency_ns = std::min(kLatency, plain.simulation.time_ns / 5'000)});
  }
}

void CarrySearch::run() {
  std::vector<Plan> bases;
  for (auto at = front_.points().upper_bound(*options_.budget_bytes); at != front_.points().end(); ++at) {
    bases.push_back(at->second.plan);
  }
  for (const Plan& base : bases) {
    if (asked_to_stop(options_)) return;
    carry(base);
  }
}

void CarrySearch::carry(const Plan& base) {
  Placing placing(problem_.step(), problem_.costs(), base, least_bytes_);
  for (const Placing::First first : {Placing::First::kMade, Placing::First::kNeededLast}) {
    if (!placing.let_go(*options_.budget_bytes, first)) continue;
    for (const Link& pace : paces_) front_.add_carrying(placing.plan(pace), options_.host_budget_bytes);
  }
}

}  // namespace reprise::detail
