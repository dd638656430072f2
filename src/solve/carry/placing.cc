#include "solve/carry/placing.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "simulate/simulator.h"

namespace reprise::detail {
namespace {

constexpr std::int64_t kMargin = 10;  // copies back are expected to take longer by this part

// For each value in memory at the moment, the run that began its life and the last that used it.
struct Use {
  bool live = false;
  std::size_t made = 0;
  std::size_t last = 0;
};

}  // namespace

Placing::Placing(const Graph& graph, const Costs& costs, const Plan& base, std::int64_t least_bytes)
    : graph_(graph), costs_(costs), base_(base), least_bytes_(least_bytes) {
  const Timeline timeline = Simulator(graph, costs).timeline(base);
  during_.push_back(timeline.start_bytes);
  begin_ns_.push_back(0);
  run_ns_.push_back(0);
  for (std::size_t at = 0; at < base.actions.size(); ++at) {
    if (!base.actions[at].computes()) continue;
    during_.push_back(timeline.during_bytes[at]);
    begin_ns_.push_back(timeline.begin_ns[at]);
    run_ns_.push_back(timeline.end_ns[at] - timeline.begin_ns[at]);
  }
  time_ns_ = timeline.total.time_ns;
  find_gaps();
}

// Whether the value is large enough, and in memory that plans may free.
bool Placing::may_leave(ValueId value) const {
  if (bytes(value) < least_bytes_ || bytes(value) == 0) return false;
  for (ValueId v = value; v != kNoValue; v = graph_.overwrites(v)) {
    if (graph_.pinned(v)) return false;
  }
  return true;
}

// A run that makes a value which is live makes a second copy; this counts as a use, so that the value is there then.
void Placing::find_gaps() {
  ByValue<Use> uses(graph_.num_values(), Use{});
  for (ValueId v{0}; index(v) < graph_.num_values(); ++v) uses[v].live = graph_.residence(v) != Residence::kPlanned;
  std::size_t run = 0;
  const auto use = [&](ValueId v) {
    Use& now = uses[v];
    if (now.last + 1 < run && may_leave(v)) {
      gaps_.push_back({.value = v, .made = now.made, .after = now.last, .before = run});
    }
    now.last = run;
  };
  for (const Action action : base_.actions) {
    if (!action.computes()) {
      uses[action.value()].live = false;
      continue;
    }
    ++run;
    for (const ValueId v : graph_.inputs(action.op())) use(v);
    for (const ValueId v : graph_.outputs(action.op())) {
      const ValueId old = graph_.overwrites(v);
      if (action.in_place() && old != kNoValue) uses[old].live = false;
      if (uses[v].live) use(v);
      if (!uses[v].live) uses[v] = {.live = true, .made = run, .last = run};
    }
  }
  std::ranges::stable_sort(gaps_, {}, &Gap::after);
}

// Whether the copy to the host is done when the run begins, and there is time for the way back.
bool Placing::is_ready(const Gap& gap, std::size_t run) const {
  const std::int64_t begin_ns = std::max(stored_ns_, begin_ns_[gap.made] + run_ns_[gap.made]);
  return gap.copy_ns <= begin_ns_[run] - begin_ns && gap.copy_ns <= begin_ns_[gap.before] - begin_ns_[run];
}

// What goes first has the lowest rank.
Placing::Rank Placing::rank(const Gap& gap, std::size_t run, std::int64_t too_many, First first) const {
  const std::int64_t size = bytes(gap.value);
  switch (first) {
    case First::kMade:
      return {0, static_cast<std::int64_t>(gap.made)};
    case First::kNeededLast:
      return {0, -static_cast<std::int64_t>(gap.before)};
    case First::kFits:
      break;
  }
  const bool enough = size >= too_many;
  return {(is_ready(gap, run) ? 0 : 2) + (enough ? 0 : 1), enough ? size : -size};
}

std::optional<Placing::Gap> Placing::next_to_go(std::vector<Gap>& open, std::size_t run, std::int64_t too_many,
                                                First first) const {
  std::size_t kept = 0, best = 0;
  Rank least{};
  for (std::size_t i = 0; i < open.size(); ++i) {
    if (open[i].before <= run) continue;
    const Rank now = rank(open[i], run, too_many, first);
    if (kept == 0 || now < least) {
      least = now;
      best = kept;
    }
    if (kept != i) open[kept] = open[i];
    ++kept;
  }
  open.resize(kept, Gap{});
  if (open.empty()) return std::nullopt;
  const Gap gap = open[best];
  open.erase(open.begin() + static_cast<std::ptrdiff_t>(best));
  return gap;
}

bool Placing::let_go(std::int64_t budget_bytes, const Rule& rule) {
  budget_bytes_ = budget_bytes;
  away_.clear();
  stored_ns_ = 0;
  room_.assign(during_.size(), 0);
  if (during_.front() > budget_bytes) return false;
  std::vector<Gap> open;
  std::vector<std::int64_t> back(during_.size(), 0);  // by run: bytes that are there again
  ByValue<std::uint8_t> stored(graph_.num_values(), 0);
  std::int64_t gone = 0;
  std::size_t next = 0;
  for (std::size_t run = 1; run <= num_runs(); ++run) {
    for (; next < gaps_.size() && gaps_[next].after < run; ++next) {
      if (!rule.barred.empty() && rule.barred[gaps_[next].value] != 0) continue;
      open.push_back(gaps_[next]);
      if (rule.first == First::kFits) open.back().copy_ns = copy_ns(rule.pace, gaps_[next].value);
    }
    gone -= back[run];
    while (during_[run] - gone > budget_bytes) {
      const std::optional<Gap> gap = next_to_go(open, run, during_[run] - gone - budget_bytes, rule.first);
      if (!gap) return false;
      const bool stores = std::exchange(stored[gap->value], 1) == 0;
      away_.push_back({.gap = *gap, .from = run, .stores = stores});
      gone += bytes(gap->value);
      back[gap->before] += bytes(gap->value);
      if (stores) stored_ns_ += gap->copy_ns;
    }
    room_[run] = budget_bytes - (during_[run] - gone);
  }
  std::ranges::stable_sort(away_, {}, [](const Away& away) { return away.gap.before; });
  return true;
}

std::vector<ValueId> Placing::away() const {
  std::vector<ValueId> found;
  for (const Away& away : away_) {
    if (away.stores) found.push_back(away.gap.value);
  }
  std::ranges::stable_sort(found, std::ranges::greater{}, [&](ValueId v) { return bytes(v); });
  return found;
}

std::int64_t Placing::least_time_ns(const Link& link) const {
  std::vector<const Away*> stored;
  for (const Away& away : away_) {
    if (away.stores) stored.push_back(&away);
  }
  std::ranges::stable_sort(stored, {}, [](const Away* away) { return away->gap.made; });
  std::int64_t down_ns = 0, wait_ns = 0;
  for (const Away* away : stored) {
    const std::size_t made = away->gap.made;
    const std::int64_t copy_ns = std::min(link.down_ns(bytes(away->gap.value)), Costs::kMaxTotalTime);
    down_ns = std::min(std::max(down_ns, begin_ns_[made] + run_ns_[made]) + copy_ns, Costs::kMaxTotalTime);
    wait_ns = std::max(wait_ns, down_ns - begin_ns_[away->from]);
  }
  return time_ns_ + wait_ns;
}

std::int64_t Placing::copy_ns(const Link& pace, ValueId value) const {
  return std::min(pace.down_ns(bytes(value)), Costs::kMaxTotalTime / 1024);
}

// When each copy back has to begin, the last one first, so that all arrive in time one after the other.
std::vector<std::int64_t> Placing::latest_begins(const Link& pace) const {
  std::vector<std::int64_t> latest(away_.size(), 0);
  std::int64_t next_ns = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = away_.size(); i-- > 0;) {
    const std::int64_t copy_ns = pace.up_ns(bytes(away_[i].gap.value));
    next_ns = std::min(next_ns, begin_ns_[away_[i].gap.before]);
    next_ns -= std::min(copy_ns, Costs::kMaxTotalTime) + std::min(copy_ns, Costs::kMaxTotalTime) / kMargin;
    next_ns = std::max(next_ns, -Costs::kMaxTotalTime);
    latest[i] = next_ns;
  }
  return latest;
}

std::vector<std::size_t> Placing::fetches(const Link& pace) const {
  const std::vector<std::int64_t> latest = latest_begins(pace);
  std::vector<std::int64_t> room = room_;
  std::vector<std::size_t> found(away_.size());
  for (std::size_t i = 0; i < away_.size(); ++i) {
    const Away& away = away_[i];
    const std::int64_t wanted = bytes(away.gap.value);
    std::size_t run = away.gap.before;
    while (run > away.from + 1 && begin_ns_[run] > latest[i] && room[run - 1] >= wanted) room[--run] -= wanted;
    found[i] = run;
  }
  return found;
}

Plan Placing::plan(const Link& pace) const {
  std::vector<std::vector<ValueId>> stored(during_.size()), freed(during_.size() + 1), fetched(during_.size() + 1);
  const std::vector<std::size_t> at = fetches(pace);
  for (std::size_t i = 0; i < away_.size(); ++i) {
    if (away_[i].stores) stored[away_[i].gap.made].push_back(away_[i].gap.value);
    freed[away_[i].from].push_back(away_[i].gap.value);
    fetched[at[i]].push_back(away_[i].gap.value);
  }
  Plan plan;
  plan.actions.reserve(base_.actions.size() + 3 * away_.size());
  std::size_t run = 0;
  const auto add = [&](const std::vector<ValueId>& values, Action (*action)(ValueId)) {
    for (const ValueId v : values) plan.actions.push_back(action(v));
  };
  add(stored[0], Action::store);
  for (const Action action : base_.actions) {
    if (!action.computes()) {
      plan.actions.push_back(action);
      continue;
    }
    ++run;
    add(freed[run], Action::free);
    add(fetched[run], Action::fetch);
    plan.actions.push_back(action);
    add(stored[run], Action::store);
  }
  return plan;
}

}  // namespace reprise::detail
