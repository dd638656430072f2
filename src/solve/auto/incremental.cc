#include "solve/auto/incremental.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace reprise::detail {
namespace {

constexpr std::size_t kWindows = 64;  // of forward, and of backward
constexpr std::size_t kLeastWindow = 6;
constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();
constexpr std::size_t kRunWork = 4;  // in the reads that work is counted in
constexpr std::size_t kValuesPerWork = 32;
constexpr std::size_t kBlock = 64;  // bytes compared at a time

// Calls `tell` with every value for which two vectors of bytes differ.
template <typename Byte, typename Tell>
void each_difference(const ByValue<Byte>& a, const ByValue<Byte>& b, Tell tell) {
  static_assert(sizeof(Byte) == 1);
  for (std::size_t begin = 0; begin < a.size(); begin += kBlock) {
    const std::size_t size = std::min(kBlock, a.size() - begin);
    if (std::memcmp(a.data() + begin, b.data() + begin, size) == 0) continue;
    for (ValueId v = value_id(begin); v < value_id(begin + size); ++v) {
      if (a[v] != b[v]) tell(v);
    }
  }
}

}  // namespace

IncrementalEvaluator::IncrementalEvaluator(const StepModel& model)
    : model_(model), maker_(model), scan_(model), most_runs_(most_runs(model)) {}

bool IncrementalEvaluator::rebase(const Choice& choice) {
  labels_ = choice.labels;
  order_ = choice.order;
  divide();
  make_base_runs();
  if (runs_.size() > most_runs_ || again_ns_ > kMostTime) return false;
  scan_base();
  find_touches();
  shifts_.assign(windows_, 0);
  scanned_.assign(windows_, 0);
  now_.assign(order_.size() + 1, 0);
  return true;
}

void IncrementalEvaluator::divide() {
  const std::size_t forward = index(model_.caller) + 1;
  const std::size_t forward_size = std::max(kLeastWindow, forward / kWindows + 1);
  const std::size_t backward_size = std::max(kLeastWindow, order_.size() / kWindows + 1);
  turn_begin_.clear();
  run_begin_.clear();
  for (std::size_t op = 0; op < forward; op += forward_size) {
    turn_begin_.push_back(0);
    run_begin_.push_back(static_cast<std::uint32_t>(op));
  }
  forward_windows_ = turn_begin_.size();
  for (std::size_t turn = 1; turn <= order_.size(); turn += backward_size) {
    turn_begin_.push_back(static_cast<std::uint32_t>(turn));
  }
  windows_ = turn_begin_.size();
  turn_begin_.push_back(static_cast<std::uint32_t>(order_.size() + 1));
}

void IncrementalEvaluator::make_base_runs() {
  maker_.runs.clear();
  maker_.presence.assign(model_.num_values(), Presence::kPresent);
  for (const ValueId v : model_.droppable_values) maker_.presence[v] = after_forward(labels_[v]);
  for (OpId op{0}; op <= model_.caller; ++op) maker_.runs.push_back({op, false});
  turn_end_.assign(1, static_cast<std::uint32_t>(maker_.runs.size()));
  presence_.resize(windows_ - forward_windows_ + 1);
  again_in_.assign(windows_, 0);
  again_ns_ = 0;
  for (std::size_t w = forward_windows_; w < windows_ && again_ns_ <= kMostTime; ++w) {
    presence_[w - forward_windows_] = maker_.presence;
    run_begin_.push_back(static_cast<std::uint32_t>(maker_.runs.size()));
    maker_.again_ns = 0;
    for (std::size_t turn = turn_begin_[w]; turn < turn_begin_[w + 1]; ++turn) {
      maker_.turn(order_[turn - 1], labels_);
      turn_end_.push_back(static_cast<std::uint32_t>(maker_.runs.size()));
    }
    again_ns_ += again_in_[w] = maker_.again_ns;
    if (maker_.runs.size() > most_runs_) break;
  }
  presence_.back() = maker_.presence;
  run_begin_.push_back(static_cast<std::uint32_t>(maker_.runs.size()));
  runs_.swap(maker_.runs);
}

void IncrementalEvaluator::scan_base() {
  needed_.resize(windows_ + 1);
  live_.resize(windows_ + 1);
  highest_.assign(windows_, 0);
  riders_.assign(windows_, 0);
  profile_.assign(order_.size() + 1, 0);
  scan_.begin_at_end();
  for (std::size_t w = windows_; w-- > 0;) {
    needed_[w + 1] = scan_.needed;
    live_[w + 1] = scan_.live;
    const std::int64_t riders = scan_.not_riding;
    std::size_t turn = turn_begin_[w + 1] - std::size_t{1};
    for (std::size_t i = run_begin_[w + 1]; i-- > run_begin_[w];) {
      while (is_backward(w) && i < turn_end_[turn - 1]) --turn;
      const std::int64_t bytes = scan_.visit(runs_[i]);
      highest_[w] = std::max(highest_[w], bytes);
      std::int64_t& at = profile_[is_backward(w) ? turn : 0];
      at = std::max(at, bytes);
      work_ += 2 + model_.inputs(runs_[i].op).size();
    }
    riders_[w] = scan_.not_riding - riders;
  }
  needed_[0] = scan_.needed;
  live_[0] = scan_.live;
  all_riders_ = scan_.not_riding;
  highest_before_.assign(windows_ + 1, model_.start_bytes);
  for (std::size_t w = 0; w < windows_; ++w) highest_before_[w + 1] = std::max(highest_before_[w], highest_[w]);
}

void IncrementalEvaluator::find_touches() {
  ByValue<std::uint32_t> last(model_.num_values(), 0xFFFFFFFFU);
  std::vector<std::pair<ValueId, std::uint32_t>> found;  // value, window
  const auto add = [&](std::span<const ValueId> values, std::uint32_t w) {
    for (const ValueId v : values) {
      if (std::exchange(last[v], w) != w) found.emplace_back(v, w);
    }
  };
  for (std::uint32_t w = 0; w < windows_; ++w) {
    for (const Run& run : base_runs(w)) {
      add(model_.inputs(run.op), w);
      add(model_.outputs(run.op), w);
    }
  }
  touches_.assign(model_.num_values(), {});
  for (const auto& [v, w] : found) ++touches_[v].end;
  std::uint32_t sum = 0;
  for (Touches& of : touches_) {
    of.begin = sum;
    sum += std::exchange(of.end, sum);
  }
  touch_list_.resize(found.size());
  for (const auto& [v, w] : found) touch_list_[touches_[v].end++] = w;
}

std::span<const std::uint32_t> IncrementalEvaluator::touches(ValueId value) const {
  return {touch_list_.data() + touches_[value].begin, touch_list_.data() + touches_[value].end};
}

// The first window from `from` on whose runs may differ.
std::size_t IncrementalEvaluator::next_touched(std::size_t from) const {
  std::size_t first = kNowhere;
  const auto look = [&](ValueId value) {
    const auto list = touches(value);
    const auto it = std::ranges::lower_bound(list, from);
    if (it != list.end()) first = std::min<std::size_t>(first, *it);
  };
  for (const Change& change : changes_) look(change.value);
  for (const Dirty& dirty : dirty_) look(dirty.value);
  return first;
}

// The last window up to `up_to` that touches a value whose need differs.
std::size_t IncrementalEvaluator::last_touched(std::size_t up_to) const {
  std::size_t last = kNowhere;
  for (const ValueId value : different_) {
    const auto list = touches(value);
    const auto it = std::ranges::upper_bound(list, up_to);
    if (it != list.begin() && (last == kNowhere || *(it - 1) > last)) last = *(it - 1);
  }
  return last;
}

bool IncrementalEvaluator::follow_forwards() {
  rewritten_.clear();
  turn_ends_.clear();
  maker_.runs.clear();
  now_again_ns_ = again_ns_;
  std::size_t runs = runs_.size();
  for (std::size_t w = next_touched(forward_windows_); w != kNowhere; w = next_touched(w + 1)) {
    rewrite(w);
    const Rewritten& made = rewritten_.back();
    runs += made.runs_end - made.runs_begin - base_runs(w).size();
    if (runs > most_runs_ || now_again_ns_ > kMostTime) return false;
  }
  return true;
}

// Makes the runs of a backward window with the changed labels, and finds whose presence differs after it.
void IncrementalEvaluator::rewrite(std::size_t window) {
  const std::size_t b = window - forward_windows_;
  maker_.presence = presence_[b];
  for (const Dirty& dirty : dirty_) maker_.presence[dirty.value] = dirty.presence;
  maker_.again_ns = 0;
  Rewritten made{.window = window, .runs_begin = maker_.runs.size(), .runs_end = 0, .turn_ends = turn_ends_.size()};
  for (std::size_t turn = turn_begin_[window]; turn < turn_begin_[window + 1]; ++turn) {
    maker_.turn(order_[turn - 1], labels_);
    turn_ends_.push_back(static_cast<std::uint32_t>(maker_.runs.size()));
    if (maker_.runs.size() - made.runs_begin > most_runs_) break;
  }
  made.runs_end = maker_.runs.size();
  now_again_ns_ += maker_.again_ns - again_in_[window];
  work_ += kRunWork * (made.runs_end - made.runs_begin) + model_.num_values() / kValuesPerWork;
  rewritten_.push_back(made);
  dirty_.clear();
  each_difference(maker_.presence, presence_[b + 1], [&](ValueId v) { dirty_.push_back({v, maker_.presence[v]}); });
}

// Adds up the bytes of a window again. Returns its highest instant.
std::int64_t IncrementalEvaluator::rescan(std::size_t window, const Rewritten* other) {
  scan_.needed = needed_[window + 1];
  for (const ValueId v : different_) scan_.needed[v] ^= 1;
  scan_.live = live_[window + 1] + shift_;
  scan_.not_riding = 0;
  work_ += model_.num_values() / kValuesPerWork;
  const std::span<const Run> runs =
      other == nullptr
          ? base_runs(window)
          : std::span<const Run>(maker_.runs).subspan(other->runs_begin, other->runs_end - other->runs_begin);
  const std::size_t first = other == nullptr ? run_begin_[window] : other->runs_begin;
  const auto end_of = [&](std::size_t turn) -> std::size_t {
    return other == nullptr ? turn_end_[turn] : turn_ends_[other->turn_ends + turn - turn_begin_[window]];
  };
  std::size_t turn = turn_begin_[window + 1] - std::size_t{1};
  std::int64_t highest = 0;
  for (std::size_t s = turn_begin_[window]; is_backward(window) && s <= turn; ++s) now_[s] = 0;
  for (std::size_t i = runs.size(); i-- > 0;) {
    while (is_backward(window) && turn > turn_begin_[window] && first + i < end_of(turn - 1)) --turn;
    const std::int64_t bytes = scan_.visit(runs[i]);
    highest = std::max(highest, bytes);
    if (is_backward(window)) now_[turn] = std::max(now_[turn], bytes);
    work_ += 2 + model_.inputs(runs[i].op).size();
  }
  different_.clear();
  shift_ = 0;
  each_difference(scan_.needed, needed_[window], [&](ValueId v) {
    different_.push_back(v);
    shift_ += scan_.needed[v] != 0 ? model_.weight[v] : -model_.weight[v];
  });
  return highest;
}

Cost IncrementalEvaluator::follow_backwards(std::int64_t limit_bytes) {
  different_.clear();
  shift_ = 0;
  std::ranges::fill(shifts_, 0);
  std::ranges::fill(scanned_, 0);
  now_[0] = 0;
  std::int64_t peak = model_.start_bytes;
  std::int64_t riders = all_riders_;
  std::size_t left = rewritten_.size();
  work_ += windows_;
  for (std::size_t w = windows_; w > 0;) {  // windows from w on are done
    const std::size_t touched = last_touched(w - 1);
    std::size_t stop = touched == kNowhere ? 0 : touched + 1;
    if (left > 0) stop = std::max(stop, rewritten_[left - 1].window + 1);
    if (stop == 0 && shift_ == 0) {
      peak = std::max(peak, highest_before_[w]);
      for (std::size_t f = 0; f < std::min(w, forward_windows_); ++f) now_[0] = std::max(now_[0], highest_[f]);
      break;
    }
    for (; w > stop; --w) {
      shifts_[w - 1] = shift_;
      peak = std::max(peak, highest_[w - 1] + shift_);
      if (!is_backward(w - 1)) now_[0] = std::max(now_[0], highest_[w - 1] + shift_);
    }
    if (peak > limit_bytes) return {};
    if (w == 0) break;
    --w;
    const bool other = left > 0 && rewritten_[left - 1].window == w;
    if (other) --left;
    scanned_[w] = 1;
    const std::int64_t highest = rescan(w, other ? &rewritten_[left] : nullptr);
    if (!is_backward(w)) now_[0] = std::max(now_[0], highest);
    riders += scan_.not_riding - riders_[w];
    peak = std::max(peak, highest);
    if (peak > limit_bytes) return {};
  }
  return {.peak_bytes = peak + riders, .time_ns = model_.step_time_ns + now_again_ns_};
}

Cost IncrementalEvaluator::attempt(std::span<const Change> changes, std::int64_t limit_bytes) {
  changes_ = changes;
  dirty_.clear();
  before_.clear();
  for (const Change& change : changes) {  // what differs before backward; then runs are made with the new labels
    const Presence presence = after_forward(change.label);
    if (presence != after_forward(labels_[change.value])) dirty_.push_back({change.value, presence});
    before_.push_back({change.value, std::exchange(labels_[change.value], change.label)});
  }
  const Cost cost = follow_forwards() ? follow_backwards(limit_bytes) : Cost{};
  for (const Change& change : before_) labels_[change.value] = change.label;
  return cost;
}

double IncrementalEvaluator::excess(std::int64_t budget_bytes) const {
  const auto over = [&](std::int64_t bytes) {
    return static_cast<double>(std::max<std::int64_t>(0, bytes - budget_bytes));
  };
  double sum = over(now_[0]);
  for (std::size_t w = forward_windows_; w < windows_; ++w) {
    for (std::size_t turn = turn_begin_[w]; turn < turn_begin_[w + 1]; ++turn) {
      sum += over(scanned_[w] != 0 ? now_[turn] : profile_[turn] + shifts_[w]);
    }
  }
  return sum;
}

}  // namespace reprise::detail
