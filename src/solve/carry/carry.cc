#include "solve/carry/carry.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "solve/carry/relieved.h"
#include "solve/planner.h"

namespace reprise::detail {
namespace {

constexpr std::array kFirsts{Placing::First::kMade, Placing::First::kNeededLast, Placing::First::kFits};
constexpr double kAbove = 1.3;  // paces up to so many times the rates of the link are tried

// Below this, a copy is mostly latency; but on a small step everything may be carried.
std::int64_t least_carried_bytes(std::int64_t peak_bytes) {
  constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;
  return std::min(std::max(kMebibyte, peak_bytes / 5'000), peak_bytes / 100);
}

}  // namespace

CarrySearch::CarrySearch(const Problem& problem, const SolveOptions& options, Front& front)
    : problem_(problem), options_(options), front_(front), simulator_(problem.step(), problem.costs()) {
  // The step as it is has the largest peak in the front.
  least_bytes_ = least_carried_bytes(front.points().rbegin()->first);
  find_paces();
}

// A pace of one carries the whole peak within the time of the step.
void CarrySearch::find_paces() {
  constexpr int kSlowest = -14, kFastest = 6;  // in half powers of two
  constexpr std::int64_t kLatency = 10'000;
  latency_ns_ = std::min(kLatency, front_.points().rbegin()->second.simulation.time_ns / 5'000);
  const Front::Point& plain = front_.points().rbegin()->second;
  const double one = 1e9 * static_cast<double>(std::max<std::int64_t>(1, plain.simulation.peak_bytes)) /
                     static_cast<double>(std::max<std::int64_t>(1, plain.simulation.time_ns));
  const Link& link = *problem_.costs().link;
  const auto most = 2 * static_cast<double>(std::max(link.down_bytes_per_s, link.up_bytes_per_s));
  for (int i = kSlowest; i <= kFastest; ++i) {
    const double rate = one * std::exp2(.5 * i);
    if (rate > most && !paces_.empty()) break;
    paces_.push_back(pace(rate));
  }
}

Link CarrySearch::pace(double bytes_per_s) const {
  const auto rate = static_cast<std::int64_t>(std::clamp(bytes_per_s, 1.0, 1e18));
  return {.down_bytes_per_s = rate, .up_bytes_per_s = rate, .latency_ns = latency_ns_};
}

void CarrySearch::run(bool searches) {
  for (auto at = front_.points().upper_bound(*options_.budget_bytes); at != front_.points().end(); ++at) {
    if (!copies(at->second.plan)) bases_.push_back(at->second.plan);
  }
  const Front::Point* without = front_.fastest(*options_.budget_bytes);
  const Plan start = without != nullptr ? without->plan : front_.points().begin()->second.plan;
  const std::int64_t excess = front_.points().rbegin()->first - *options_.budget_bytes;
  for (std::size_t i = bases_.size(); i-- > 0;) carry(bases_[i]);
  if (!searches || excess <= 0) return;
  const Link& link = *problem_.costs().link;
  const double most = kAbove * static_cast<double>(std::max(link.down_bytes_per_s, link.up_bytes_per_s)) * 1e-9;
  RelievedSearch(problem_, options_, start).run(most, excess, [this](const Plan& base, double bytes_per_ns) {
    const Link at = pace(1e9 * bytes_per_ns);
    if (const Plan* best = best_base(at)) carry_at(*best, at);
    carry_at(base, at);
    carry(base);
  });
}

std::int64_t CarrySearch::best_ns() const {
  const Front::Point* best = front_.fastest(*options_.budget_bytes);
  return best == nullptr ? std::numeric_limits<std::int64_t>::max() : best->simulation.time_ns;
}

// Skips what cannot be faster than the fastest so far.
void CarrySearch::carry(const Plan& base) {
  if (asked_to_stop(options_) || simulator_.run(base).time_ns >= best_ns()) return;
  Placing placing(problem_.step(), problem_.costs(), base, least_bytes_);
  for (const Placing::First first : kFirsts) {
    if (first != Placing::First::kFits && !placing.let_go(*options_.budget_bytes, {.first = first})) continue;
    for (const Link& pace : paces_) {
      if (first == Placing::First::kFits && !placing.let_go(*options_.budget_bytes, {first, pace})) break;
      if (placing.least_time_ns(*problem_.costs().link) >= best_ns()) continue;
      front_.add_carrying(placing.plan(pace), options_.host_budget_bytes);
    }
  }
}

// The fastest one at this pace in an even selection of the bases in the front, as far as copies to the host alone tell;
// none if nothing fits.
const Plan* CarrySearch::best_base(const Link& pace) {
  constexpr std::size_t kOps = 100'000, kAtLeast = 24;
  const std::size_t count = std::min(bases_.size(), std::max(kAtLeast, kOps / problem_.step().num_ops()));
  for (std::size_t i = 0; selected_.size() < count; ++i) {
    const Plan& base = bases_[i * bases_.size() / count];
    selected_.emplace_back(&base, std::make_unique<Placing>(problem_.step(), problem_.costs(), base, least_bytes_));
  }
  const Plan* best = nullptr;
  std::int64_t least_ns = std::numeric_limits<std::int64_t>::max();
  for (const auto& [base, placing] : selected_) {
    for (const Placing::First first : {Placing::First::kMade, Placing::First::kFits}) {
      if (!placing->let_go(*options_.budget_bytes, {first, pace, {}})) break;
      const std::int64_t time_ns = placing->least_time_ns(pace);
      if (time_ns < least_ns) best = base;
      least_ns = std::min(least_ns, time_ns);
    }
  }
  return best;
}

// Bars one value after the other from leaving, as long as that makes the plan faster at this pace.
void CarrySearch::carry_at(const Plan& base, const Link& pace) {
  constexpr int kPasses = 2;
  constexpr std::size_t kMostBarred = 16;  // the largest of what is away
  Placing placing(problem_.step(), problem_.costs(), base, least_bytes_);
  Costs costs = problem_.costs();
  costs.link = pace;
  Simulator simulator(problem_.step(), costs);
  const std::int64_t base_ns = simulator.run(base).time_ns;
  std::int64_t least_ns = std::numeric_limits<std::int64_t>::max();
  const auto attempt = [&](const Placing::Rule& rule) {
    if (asked_to_stop(options_) || !placing.let_go(*options_.budget_bytes, rule)) return false;
    if (placing.least_time_ns(pace) >= least_ns) return false;
    Plan plan = placing.plan(pace);
    const std::int64_t time_ns = simulator.run(plan).time_ns;
    if (time_ns >= least_ns) return false;
    least_ns = time_ns;
    front_.add_carrying(std::move(plan), options_.host_budget_bytes);
    return true;
  };
  for (const Placing::First first : kFirsts) {
    Placing::Rule rule{first, pace, ByValue<std::uint8_t>(problem_.step().num_values(), 0)};
    bool better = attempt(rule);
    for (int pass = 0; pass < kPasses && better && least_ns > base_ns; ++pass) {
      better = false;
      std::vector<ValueId> away = placing.away();
      away.resize(std::min(away.size(), kMostBarred));
      for (const ValueId v : away) {
        rule.barred[v] = 1;
        const bool faster = attempt(rule);
        rule.barred[v] = faster ? 1 : 0;
        better = better || faster;
      }
      (void)placing.let_go(*options_.budget_bytes, rule);
    }
  }
}

}  // namespace reprise::detail
