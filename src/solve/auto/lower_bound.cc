#include "solve/auto/lower_bound.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "solve/auto/max_flow.h"

namespace reprise::detail {
namespace {

constexpr std::size_t kMostTurns = 14;
constexpr std::size_t kPrices = 40;

// The network of one window, built from its needs backwards.
class WindowCut {
 public:
  WindowCut(const StepModel& model, const ByOp<std::uint32_t>& first_run, std::uint32_t turn)
      : model_(model),
        first_run_(first_run),
        turn_(turn),
        value_node_(model.num_values(), kNone),
        op_node_(model.num_ops(), kNone) {}

  // Marks a value as present at no cost.
  void give(ValueId value) { value_node_[value] = kFree; }

  void need(ValueId value) {
    const std::uint32_t node = node_of(value);
    if (node != kFree) flow_.set_capacity(flow_.add_arc(node, MaxFlow::kSink), MaxFlow::kUnlimited);
  }

  void freeze() {
    std::size_t next = 0;
    while (next < made_.size()) {  // the list grows during this loop
      const OpId op = made_[next++];
      for (const ValueId v : model_.inputs(op)) {
        const std::uint32_t node = node_of(v);
        if (node != kFree) flow_.set_capacity(flow_.add_arc(node, op_node_[op]), MaxFlow::kUnlimited);
      }
    }
    flow_.freeze(nodes_);
  }

  // The value of the cut, never above the truth: capacities are rounded down.
  double solve(double price) {
    for (const auto& [arc, bytes] : keeps_) {
      flow_.set_capacity(arc, MaxFlow::units(price * static_cast<double>(bytes)));
    }
    return static_cast<double>(flow_.solve()) / MaxFlow::kUnitsPerNs;
  }

  // Prices beyond these do not change the cut.
  [[nodiscard]] double least_price() const { return least_price_; }
  [[nodiscard]] double largest_price() const { return largest_price_; }
  [[nodiscard]] std::size_t work() const { return flow_.work(); }

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFU;
  static constexpr std::uint32_t kFree = 0xFFFFFFFEU;

  std::uint32_t node_of(ValueId v) {
    if (value_node_[v] != kNone) return value_node_[v];
    const OpId op = model_.producer[v];
    const bool from_start = op == kNoOp;
    // The value has no weight, or is (perhaps) made after the window begins: it is assumed to be present.
    if (model_.weight[v] == 0 || (!from_start && first_run_[op] > turn_)) return value_node_[v] = kFree;
    value_node_[v] = nodes_++;
    const std::uint32_t keep = flow_.add_arc(from_start ? MaxFlow::kSource : op_node(op), value_node_[v]);
    keeps_.emplace_back(keep, model_.weight[v]);
    return value_node_[v];
  }

  std::uint32_t op_node(OpId op) {
    if (op_node_[op] != kNone) return op_node_[op];
    op_node_[op] = nodes_++;
    made_.push_back(op);
    const bool once = model_.graph.once(op);
    const std::int64_t time = model_.ops[op].time_ns;
    flow_.set_capacity(flow_.add_arc(MaxFlow::kSource, op_node_[op]),
                       once ? MaxFlow::kUnlimited : MaxFlow::units(static_cast<double>(time)));
    for (const ValueId v : model_.outputs(op)) {
      if (once || model_.weight[v] == 0 || time == 0) continue;
      const double ratio = static_cast<double>(time) / static_cast<double>(model_.weight[v]);
      least_price_ = std::min(least_price_, ratio);
      largest_price_ = std::max(largest_price_, ratio);
    }
    return op_node_[op];
  }

  const StepModel& model_;
  const ByOp<std::uint32_t>& first_run_;
  std::uint32_t turn_;
  MaxFlow flow_;
  std::uint32_t nodes_ = 2;
  ByValue<std::uint32_t> value_node_;
  ByOp<std::uint32_t> op_node_;
  std::vector<OpId> made_;
  std::vector<std::pair<std::uint32_t, std::int64_t>> keeps_;
  double least_price_ = 1e9;
  double largest_price_ = 0;
};

}  // namespace

LowerBound::LowerBound(const StepModel& model, std::vector<OpId> order, std::span<const std::int64_t> plain_profile,
                       std::size_t work, bool may_carry)
    : model_(model), order_(std::move(order)), may_carry_(may_carry) {
  find_needed();
  find_floor();
  choose_turns(plain_profile, kMostTurns);
  // Whole windows come first, because with little work they give the best bound.
  for (std::size_t begin = 0; begin + 1 < turns_.size() && work_ <= work; ++begin) {
    windows_.push_back({.begin = begin, .end = turns_.size() - 1, .samples = {}});
    sample(windows_.back());
  }
  for (std::size_t length = 1; length + 1 < turns_.size(); ++length) {
    for (std::size_t begin = 0; begin + length + 1 < turns_.size() && work_ <= work; ++begin) {
      windows_.push_back({.begin = begin, .end = begin + length, .samples = {}});
      sample(windows_.back());
    }
  }
  std::ranges::stable_sort(windows_, {}, &Window::begin);
}

OpId LowerBound::op_at(std::size_t turn) const { return turn == 0 ? model_.caller : order_[turn - 1]; }

// The op must have run when the op at `turn` has, and so must all it depends on.
void LowerBound::need(OpId op, std::uint32_t turn) {
  std::vector<OpId> stack{op};
  while (!stack.empty()) {
    const OpId top = stack.back();
    stack.pop_back();
    if (first_run_[top] <= turn) continue;
    first_run_[top] = turn;
    for (const ValueId v : model_.graph.inputs(top)) {
      const OpId maker = model_.graph.producer(v);
      if (maker != kNoOp) stack.push_back(maker);
    }
  }
}

void LowerBound::find_needed() {
  first_run_.assign(model_.num_ops(), kNever);
  const auto end = static_cast<std::uint32_t>(order_.size());
  for (const ValueId v : model_.graph.step_outputs()) {
    const OpId maker = model_.graph.producer(v);
    if (maker != kNoOp) need(maker, end + 1);
  }
  for (OpId op{0}; index(op) < model_.num_ops(); ++op) {
    if (model_.graph.once(op)) need(op, end + 1);
  }
  const ByOp<std::uint32_t> some_time = first_run_;
  for (OpId op{0}; op <= model_.caller; ++op) {
    if (model_.graph.once(op)) need(op, 0);
  }
  for (std::uint32_t turn = 1; turn <= end; ++turn) {
    if (some_time[op_at(turn)] != kNever) need(op_at(turn), turn);
  }
  for (OpId op{0}; index(op) < model_.num_ops(); ++op) {
    if (first_run_[op] != kNever) needed_time_ns_ += model_.ops[op].time_ns;
  }
}

// Inputs, outputs and workspace of a run, without what is pinned.
std::int64_t LowerBound::footprint(OpId op) const {
  std::int64_t bytes = model_.ops[op].transient_bytes - model_.ops[op].in_place_bytes;
  for (const ValueId v : model_.inputs(op)) bytes += model_.weight[v];
  return bytes;
}

void LowerBound::find_floor() {
  std::int64_t start_pinned = 0;
  for (std::size_t i = 0; i < model_.graph.num_values(); ++i) {
    const ValueId v = value_id(i);
    if (model_.graph.residence(v) != Residence::kPlanned && model_.graph.pinned(v))
      start_pinned += model_.costs.value_bytes[index(v)];
  }
  pinned_bytes_ = start_pinned;
  for (OpId op{0}; index(op) < model_.num_ops(); ++op) {
    if (first_run_[op] == 0 && op != model_.caller) pinned_bytes_ += model_.ops[op].held_bytes;
  }
  floor_bytes_ = model_.start_bytes;
  for (OpId op{0}; index(op) < model_.num_ops(); ++op) {
    if (first_run_[op] == kNever) continue;
    floor_bytes_ = std::max(floor_bytes_, (op == model_.caller ? pinned_bytes_ : start_pinned) + footprint(op));
  }
}

// From each of `count` stretches of backward the turn with the most bytes, and the caller's op.
void LowerBound::choose_turns(std::span<const std::int64_t> plain_profile, std::size_t count) {
  const std::size_t turns = plain_profile.size();
  turns_.push_back(0);
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t best = 0;
    for (std::size_t turn = std::max<std::size_t>(1, i * turns / count); turn < (i + 1) * turns / count; ++turn) {
      if (first_run_[op_at(turn)] != turn) continue;  // not needed, or forced to be earlier than its place
      if (best == 0 || plain_profile[turn] > plain_profile[best]) best = turn;
    }
    if (best > turns_.back()) turns_.push_back(best);
  }
  turns_.push_back(turns);  // the end, where the step's outputs are needed
}

void LowerBound::sample(Window& window) {
  const auto turn = static_cast<std::uint32_t>(turns_[window.begin]);
  WindowCut cut(model_, first_run_, turn);
  for (const ValueId v : model_.inputs(op_at(turn))) cut.give(v);
  for (const ValueId v : model_.outputs(op_at(turn))) cut.give(v);
  const bool to_end = window.end + 1 == turns_.size();
  const std::size_t last = to_end ? order_.size() : turns_[window.end];
  for (std::size_t s = turn + 1; s <= last; ++s) {
    if (first_run_[op_at(s)] == kNever) continue;
    for (const ValueId v : model_.inputs(op_at(s))) cut.need(v);
  }
  if (to_end && !may_carry_) {
    for (const ValueId v : model_.graph.step_outputs()) cut.need(v);
  }
  cut.freeze();
  if (cut.largest_price() <= 0) return;
  const double low = cut.least_price() / 4;
  const double ratio = std::pow(8 * cut.largest_price() / cut.least_price(), 1 / static_cast<double>(kPrices - 1));
  for (std::size_t i = 0; i < kPrices; ++i) {
    const double price = low * std::pow(ratio, static_cast<double>(i));
    const double value = cut.solve(price);
    if (value < static_cast<double>(MaxFlow::kUnlimited) / MaxFlow::kUnitsPerNs) {
      window.samples.push_back({price, value});
    }
  }
  work_ += cut.work();
}

double LowerBound::room(const Window& window, std::int64_t budget_bytes) const {
  const std::size_t turn = turns_[window.begin];
  const std::int64_t pinned = pinned_bytes_ + (turn == 0 ? 0 : model_.ops[model_.caller].held_bytes);
  return static_cast<double>(budget_bytes - pinned - footprint(op_at(turn)));
}

double LowerBound::at_least(const Window& window, std::int64_t budget_bytes) const {
  const double bytes = room(window, budget_bytes);
  double best = 0;
  for (const Sample& sample : window.samples) best = std::max(best, sample.cut_ns - sample.price * bytes);
  return best;
}

std::int64_t LowerBound::time_ns(std::int64_t budget_bytes) const {
  // best[i]: at least this much is spent again between turn i and the end.
  std::vector<double> best(turns_.size(), 0);
  std::size_t w = windows_.size();
  for (std::size_t begin = turns_.size() - 1; begin-- > 0;) {
    best[begin] = best[begin + 1];
    while (w > 0 && windows_[w - 1].begin == begin) {
      --w;
      best[begin] = std::max(best[begin], at_least(windows_[w], budget_bytes) + best[windows_[w].end]);
    }
  }
  return rounded(best[0]);
}

std::int64_t LowerBound::rounded(double again_ns) const {
  constexpr double kRounding = 1e-3;
  const double again = std::clamp(again_ns - kRounding, 0.0, static_cast<double>(Costs::kMaxTotalTime));
  return needed_time_ns_ + static_cast<std::int64_t>(std::ceil(again));
}

// The time of the needed backward ops after one of the turns, up to and with another.
double LowerBound::first_run_ns(std::size_t begin, std::size_t end) const {
  double sum = 0;
  for (std::size_t turn = turns_[begin] + 1; turn <= std::min(turns_[end], order_.size()); ++turn) {
    if (first_run_[op_at(turn)] != kNever) sum += static_cast<double>(model_.ops[op_at(turn)].time_ns);
  }
  return sum;
}

namespace {

// What has left before an op and returns after it was carried down in the time before it and up in the time after it.
// With a weight on each, both times together are at least this; the best of several weights. Rates are in ns per byte.
double weighed_ns(double before_ns, double after_ns, double price, double down, double up) {
  constexpr int kWeights = 40;
  double most = 0;
  for (int k = 0; k <= kWeights; ++k) {
    const double w1 = static_cast<double>(k) / kWeights;
    const double w2 = std::clamp((price - w1 * down) / (price + up), 0.0, 1.0);
    most = std::max(most, (1 - w1) * before_ns + (1 - w2) * after_ns);
  }
  return most;
}

}  // namespace

std::int64_t LowerBound::time_ns(std::int64_t budget_bytes, const Link& link, std::int64_t host_budget_bytes) const {
  const double down = 1e9 / static_cast<double>(link.down_bytes_per_s);  // ns per byte
  const double up = 1e9 / static_cast<double>(link.up_bytes_per_s);
  // rest[i]: at least this much time passes from the end of turn i to the end of the step.
  std::vector<double> rest(turns_.size(), 0);
  double most = 0;
  std::size_t w = windows_.size();
  for (std::size_t begin = turns_.size() - 1; begin-- > 0;) {
    rest[begin] = first_run_ns(begin, begin + 1) + rest[begin + 1];
    const OpId op = op_at(turns_[begin]);
    const auto op_ns = static_cast<double>(model_.ops[op].time_ns);
    double before_ns = -op_ns;
    for (OpId other{0}; index(other) < model_.num_ops(); ++other) {
      if (first_run_[other] <= turns_[begin]) before_ns += static_cast<double>(model_.ops[other].time_ns);
    }
    const std::size_t last = w;
    while (w > 0 && windows_[w - 1].begin == begin) --w;
    for (std::size_t i = w; i < last; ++i) {
      const Window& window = windows_[i];
      const double open_ns = first_run_ns(begin, window.end);
      for (const Sample& sample : window.samples) {
        const double ns = open_ns + sample.cut_ns - sample.price * room(window, budget_bytes);
        if (ns <= 0) continue;
        rest[begin] = std::max(rest[begin], ns * up / (up + sample.price) + rest[window.end]);
        most = std::max(most, op_ns + weighed_ns(before_ns, ns, sample.price, down, up) + rest[window.end]);
      }
    }
    most = std::max(most, before_ns + op_ns + rest[begin]);
  }
  const std::int64_t by_link = rounded(most * (1 - 1e-12) - static_cast<double>(needed_time_ns_));
  const std::int64_t more = std::min(host_budget_bytes, Costs::kMaxTotalBytes);
  return std::max(by_link, time_ns(std::min(budget_bytes, Costs::kMaxTotalBytes) + more));
}

}  // namespace reprise::detail
