#include "solve/auto/local_search.h"

#include <algorithm>
#include <utility>

namespace reprise::detail {

LocalSearch::LocalSearch(const StepModel& model, Evaluator& evaluator, Pool& pool, std::function<bool()> out_of_work)
    : model_(model), evaluator_(evaluator), pool_(pool), out_of_work_(std::move(out_of_work)) {
  std::int64_t bytes = 0;
  for (const std::uint32_t v : model.droppable_values) bytes += model.weight[v];
  tiny_bytes_ = bytes / 20'000;
}

Cost LocalSearch::judge(const Choice& choice, std::int64_t limit_bytes) {
  const Cost cost = evaluator_.evaluate(choice, limit_bytes);
  pool_.offer(cost, choice);
  return cost;
}

// Bytes above the budget, summed over the slots of the last evaluation.
double LocalSearch::excess(std::int64_t budget_bytes) const {
  double sum = 0;
  for (const std::int64_t bytes : evaluator_.profile()) {
    sum += static_cast<double>(std::max<std::int64_t>(0, bytes - budget_bytes));
  }
  return sum;
}

double LocalSearch::dearness(std::uint32_t value) const {
  return static_cast<double>(model_.ops[model_.producer[value]].time_ns) /
         static_cast<double>(std::max<std::int64_t>(1, model_.weight[value]));
}

// Outputs of ops that the last choice ran again, the most time first.
std::vector<LocalSearch::Move> LocalSearch::keeps(const Choice& choice) const {
  std::vector<Move> moves;
  const auto reruns = evaluator_.reruns();
  for (const std::uint32_t v : model_.droppable_values) {
    const std::uint32_t op = model_.producer[v];
    if (choice.labels[v] == Label::kKeep || reruns[op] == 0) continue;
    const double saved = static_cast<double>(model_.ops[op].time_ns) * reruns[op];
    moves.push_back({v, Label::kKeep, saved});
    if (choice.labels[v] == Label::kDiscard && reruns[op] > 1) moves.push_back({v, Label::kHold, saved * .5});
  }
  std::ranges::stable_sort(moves, std::ranges::greater{}, &Move::score);
  return moves;
}

// Kept values, the cheapest per byte first.
std::vector<LocalSearch::Move> LocalSearch::drops(const Choice& choice) const {
  std::vector<Move> moves;
  for (const std::uint32_t v : model_.droppable_values) {
    if (choice.labels[v] != Label::kKeep || model_.weight[v] <= tiny_bytes_) continue;
    moves.push_back({v, Label::kHold, dearness(v)});
  }
  std::ranges::stable_sort(moves, {}, &Move::score);
  return moves;
}

bool LocalSearch::repair(Choice& choice, std::int64_t budget_bytes) {
  constexpr std::size_t kTries = 24;
  constexpr auto kNoLimit = std::numeric_limits<std::int64_t>::max();
  Cost cost = judge(choice, kNoLimit);
  double over = excess(budget_bytes);
  while (cost.peak_bytes > budget_bytes) {
    std::vector<Move> moves = drops(choice);
    double best_ratio = 0;
    const Move* best = nullptr;
    Cost best_cost;
    double best_over = 0;
    std::size_t tried = 0;
    for (const Move& move : moves) {
      if (out_of_work_()) return false;
      if (tried >= kTries && best != nullptr) break;
      choice.labels[move.value] = move.label;
      const Cost now = judge(choice, kNoLimit);
      choice.labels[move.value] = Label::kKeep;
      if (now == Cost{}) continue;
      const double left = excess(budget_bytes);
      if (left >= over) continue;
      ++tried;
      const double ratio = (over - left) / static_cast<double>(std::max<std::int64_t>(1, now.time_ns - cost.time_ns));
      if (ratio <= best_ratio) continue;
      best_ratio = ratio;
      best = &move;
      best_cost = now;
      best_over = left;
    }
    if (best == nullptr) return false;
    choice.labels[best->value] = best->label;
    cost = best_cost;
    over = best_over;
  }
  return true;
}

std::int64_t LocalSearch::fill(Choice& choice, std::int64_t budget_bytes) {
  Cost cost = judge(choice, budget_bytes);
  for (const Move& move : keeps(choice)) {
    if (out_of_work_()) break;
    const Label before = std::exchange(choice.labels[move.value], move.label);
    const Cost now = judge(choice, budget_bytes);
    if (now.time_ns < cost.time_ns) {
      cost = now;
    } else {
      choice.labels[move.value] = before;
    }
  }
  return cost.time_ns;
}

std::int64_t LocalSearch::swap(Choice& choice, std::int64_t time_ns, std::int64_t budget_bytes) {
  for (const Move& drop : drops(choice)) {
    if (out_of_work_()) return time_ns;
    if (choice.labels[drop.value] != Label::kKeep) continue;
    Choice other = choice;
    other.labels[drop.value] = Label::kHold;
    const Cost dropped = judge(other, budget_bytes);
    if (dropped == Cost{}) continue;
    if (dropped.time_ns <= time_ns) {
      choice = other;
      time_ns = dropped.time_ns;
      continue;
    }
    const std::int64_t lost = dropped.time_ns - time_ns;
    std::int64_t now_time = dropped.time_ns;
    std::size_t tries = 0;
    for (const Move& keep : keeps(other)) {
      if (keep.value == drop.value) continue;
      if (keep.score * 2 < static_cast<double>(lost) || ++tries > 24 || out_of_work_()) break;
      const Label before = std::exchange(other.labels[keep.value], keep.label);
      const Cost now = judge(other, budget_bytes);
      if (now.time_ns < now_time) {
        now_time = now.time_ns;
        if (now_time < time_ns) break;
      } else {
        other.labels[keep.value] = before;
      }
    }
    if (now_time < time_ns) {
      time_ns = now_time;
      choice = std::move(other);
      time_ns = fill(choice, budget_bytes);
    }
  }
  return time_ns;
}

void LocalSearch::improve(std::int64_t budget_bytes) {
  const auto below = pool_.fastest(budget_bytes);
  if (below != pool_.entries().end()) {
    Choice choice = below->second.choice;
    std::int64_t time = fill(choice, budget_bytes);
    for (std::int64_t before = time + 1; time < before && !out_of_work_();) {
      before = time;
      time = swap(choice, time, budget_bytes);
    }
  }
  std::vector<Choice> above;
  for (auto it = pool_.entries().upper_bound(budget_bytes); it != pool_.entries().end() && above.size() < 3; ++it) {
    above.push_back(it->second.choice);
  }
  for (Choice& choice : above) {
    if (out_of_work_() || !repair(choice, budget_bytes)) continue;
    std::int64_t time = fill(choice, budget_bytes);
    for (std::int64_t before = time + 1; time < before && !out_of_work_();) {
      before = time;
      time = swap(choice, time, budget_bytes);
    }
  }
}

}  // namespace reprise::detail
