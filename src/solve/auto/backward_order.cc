#include "solve/auto/backward_order.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace reprise::detail {
namespace {

void move_op(std::vector<OpId>& order, std::size_t from, std::size_t to) {
  const auto at = [&](std::size_t i) { return order.begin() + static_cast<std::ptrdiff_t>(i); };
  if (from < to) std::rotate(at(from), at(from + 1), at(to + 1));
  if (from > to) std::rotate(at(to), at(from), at(from + 1));
}

class Deferring {
 public:
  Deferring(const StepModel& model, std::int64_t least_bytes)
      : model_(model), least_bytes_(least_bytes), readers_(model.num_values(), 0) {
    for (const OpId op : model.captured_order) {
      for (const ValueId v : model.inputs(op)) ++readers_[v];
    }
    for (const ValueId v : model.graph.step_outputs()) ++readers_[v];
  }

  std::vector<OpId> order() {
    for (const OpId op : model_.captured_order) {
      if (may_wait(op) && taken(op) > least_bytes_) {
        waiting_.push_back(op);
        continue;
      }
      if (ends_step(op)) run_all_waiting();
      run(op);
      run_whatever_is_free();
    }
    run_all_waiting();
    return std::move(order_);
  }

 private:
  // Captured steps end in an op that hands all gradients over.
  [[nodiscard]] bool ends_step(OpId op) const { return op == model_.captured_order.back() && model_.graph.once(op); }

  [[nodiscard]] bool may_wait(OpId op) const {
    if (model_.graph.once(op)) return false;
    return std::ranges::all_of(model_.graph.outputs(op), [&](ValueId v) {
      return std::ranges::all_of(model_.graph.readers(v), [&](OpId reader) { return ends_step(reader); });
    });
  }

  // Bytes that stay after a run of the op, less those that go.
  [[nodiscard]] std::int64_t taken(OpId op) const {
    std::int64_t bytes = 0;
    for (const ValueId v : model_.outputs(op)) bytes += readers_[v] > 0 ? model_.weight[v] : 0;
    for (const ValueId v : model_.inputs(op)) bytes -= readers_[v] == 1 ? model_.weight[v] : 0;
    return bytes;
  }

  void run(OpId op) {
    order_.push_back(op);
    for (const ValueId v : model_.inputs(op)) --readers_[v];
  }

  void run_all_waiting() {
    while (!waiting_.empty()) {
      const auto least = std::ranges::min_element(waiting_, {}, [&](OpId op) { return taken(op); });
      const OpId op = *least;
      waiting_.erase(least);
      run(op);
    }
  }

  void run_whatever_is_free() {
    for (std::size_t i = 0; i < waiting_.size();) {
      if (taken(waiting_[i]) > least_bytes_) {
        ++i;
        continue;
      }
      run(waiting_[i]);
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
      i = 0;
    }
  }

  const StepModel& model_;
  std::int64_t least_bytes_;
  ByValue<std::uint32_t> readers_;  // backward ops still to come
  std::vector<OpId> waiting_;
  std::vector<OpId> order_;
};

}  // namespace

std::vector<OpId> deferring_order(const StepModel& model, std::int64_t least_bytes) {
  return Deferring(model, least_bytes).order();
}

OrderSearch::OrderSearch(const StepModel& model, Evaluator& evaluator, Pool& pool, std::function<bool()> out_of_work)
    : model_(model), evaluator_(evaluator), pool_(pool), out_of_work_(std::move(out_of_work)) {
  constexpr std::size_t kMost = 400;
  ByOp<std::int64_t> bytes(model.num_ops(), 0);
  for (const OpId op : model.captured_order) {
    if (model.graph.once(op)) continue;
    for (const ValueId v : model.inputs(op)) bytes[op] += model.weight[v];
    for (const ValueId v : model.outputs(op)) bytes[op] += model.weight[v];
    if (bytes[op] > 0) movable_.push_back(op);
  }
  std::ranges::stable_sort(movable_, std::ranges::greater{}, [&](OpId op) { return bytes[op]; });
  if (movable_.size() > kMost) movable_.resize(kMost);
}

// Bytes above the target, summed over the turns; infinite if the choice takes more time.
double OrderSearch::pressure(const Choice& choice, std::int64_t target_bytes, std::int64_t most_time_ns) {
  const Cost cost = evaluator_.evaluate(choice);
  pool_.offer(cost, choice);
  if (cost.time_ns > most_time_ns) return std::numeric_limits<double>::infinity();
  double sum = 0;
  for (const std::int64_t bytes : evaluator_.profile()) {
    const auto over = static_cast<double>(std::max<std::int64_t>(0, bytes - target_bytes));
    sum += over * over;
  }
  return sum;
}

void OrderSearch::find_places(const Choice& choice) {
  place_.assign(model_.num_ops(), 0);
  for (std::uint32_t i = 0; i < choice.order.size(); ++i) place_[choice.order[i]] = i;
}

// The first and the last place that an op's inputs and readers allow.
std::pair<std::size_t, std::size_t> OrderSearch::range(const Choice& choice, std::size_t place) const {
  const OpId op = choice.order[place];
  std::size_t first = 0;
  std::size_t last = choice.order.size() - 1;
  for (const ValueId v : model_.graph.inputs(op)) {
    const OpId maker = model_.graph.producer(v);
    if (maker != kNoOp && maker > model_.caller) {
      first = std::max<std::size_t>(first, place_[maker] + std::size_t{1});
    }
  }
  for (const ValueId v : model_.graph.outputs(op)) {
    for (const OpId reader : model_.graph.readers(v))
      last = std::min<std::size_t>(last, place_[reader] - std::size_t{1});
  }
  return {first, last};
}

void OrderSearch::disturb(Choice& choice, std::size_t number) {
  if (movable_.empty()) return;
  find_places(choice);
  const std::size_t from = place_[movable_[number % movable_.size()]];
  const auto [first, last] = range(choice, from);
  move_op(choice.order, from, first + number / movable_.size() % (last - first + 1));
}

bool OrderSearch::improve(Choice& choice, std::int64_t target_bytes) {
  const Cost before = evaluator_.evaluate(choice);
  if (before == Cost{}) return false;
  double least = pressure(choice, target_bytes, before.time_ns);
  bool gained = false;
  for (const OpId op : movable_) {
    if (least == 0) break;
    (void)pressure(choice, target_bytes, before.time_ns);  // for its profile
    const auto profile = evaluator_.profile();
    const auto highest = static_cast<std::size_t>(std::ranges::max_element(profile) - profile.begin());
    find_places(choice);
    const std::size_t from = place_[op];
    const auto [first, last] = range(choice, from);
    const std::array targets{first, last, std::clamp(highest == 0 ? 0 : highest - 1, first, last),
                             std::clamp(highest, first, last)};
    for (const std::size_t to : targets) {
      if (out_of_work_()) return gained;
      if (to == place_[op]) continue;
      const std::size_t now = place_[op];
      move_op(choice.order, now, to);
      const double then = pressure(choice, target_bytes, before.time_ns);
      if (then < least) {
        least = then;
        gained = true;
        find_places(choice);
      } else {
        move_op(choice.order, to, now);
      }
    }
  }
  return gained;
}

}  // namespace reprise::detail
