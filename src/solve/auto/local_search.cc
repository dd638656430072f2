#include "solve/auto/local_search.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace reprise::detail {
namespace {

// A kept value that is discarded is made again at least twice; otherwise it might be held.
constexpr double kTwice = 2;
constexpr std::int64_t kNear = 25;       // a kicked choice is worth polishing within this part of the best time
constexpr std::size_t kMostChanges = 6;  // to a base, before the changed choice becomes the base
constexpr std::int64_t kRoom = 50;       // orders aim this part below the budget, so that there is room to keep more

}  // namespace

LocalSearch::LocalSearch(const StepModel& model, Evaluator& evaluator, Pool& pool, std::function<bool()> out_of_work,
                         Options options)
    : model_(model),
      evaluator_(evaluator),
      pool_(pool),
      out_of_work_(out_of_work),
      orders_(model, evaluator, pool, std::move(out_of_work)),
      incremental_(model),
      reorder_(options.reorder),
      is_incremental_(options.incremental) {
  std::int64_t bytes = 0;
  for (const ValueId v : model.droppable_values) bytes += model.weight[v];
  tiny_bytes_ = bytes / 20'000;
  often_read_.assign(model.num_values(), 0);
  for (const ValueId v : model.droppable_values) {
    const auto later = std::ranges::count_if(model.graph.readers(v),
                                             [&](OpId op) { return op > model.caller || model.ops[op].repeatable; });
    often_read_[v] = later > 1 ? 1 : 0;
  }
}

Cost LocalSearch::judge(const Choice& choice, std::int64_t limit_bytes) {
  const Cost cost = evaluator_.evaluate(choice, limit_bytes);
  pool_.offer(cost, choice);
  return cost;
}

// Bytes above the budget, summed over the turns of the last evaluation.
double LocalSearch::excess(std::int64_t budget_bytes) const {
  double sum = 0;
  for (const std::int64_t bytes : evaluator_.profile()) {
    sum += static_cast<double>(std::max<std::int64_t>(0, bytes - budget_bytes));
  }
  return sum;
}

double LocalSearch::dearness(ValueId value) const {
  return static_cast<double>(model_.ops[model_.producer[value]].time_ns) /
         static_cast<double>(std::max<std::int64_t>(1, model_.weight[value]));
}

// Outputs of ops that the last choice ran again, the most time first.
std::vector<LocalSearch::Move> LocalSearch::keeps(const Choice& choice) const {
  std::vector<Move> moves;
  const ByOp<std::uint32_t>& reruns = evaluator_.reruns();
  for (const ValueId v : model_.droppable_values) {
    const OpId op = model_.producer[v];
    if (choice.labels[v] == Label::kKeep || reruns[op] == 0) continue;
    const double saved = static_cast<double>(model_.ops[op].time_ns) * reruns[op];
    moves.push_back({v, Label::kKeep, saved});
    if (choice.labels[v] == Label::kKeep || choice.labels[v] == Label::kHold || reruns[op] < 2) continue;
    for (const Label label : {Label::kHold, Label::kRelease, Label::kLater}) {
      if (choice.labels[v] != label) moves.push_back({v, label, saved * .5});
    }
  }
  std::ranges::stable_sort(moves, std::ranges::greater{}, &Move::score);
  return moves;
}

// Kept values, the cheapest per byte first.
std::vector<LocalSearch::Move> LocalSearch::drops(const Choice& choice) const {
  std::vector<Move> moves;
  for (const ValueId v : model_.droppable_values) {
    if (choice.labels[v] != Label::kKeep || model_.weight[v] <= tiny_bytes_) continue;
    moves.push_back({v, Label::kHold, dearness(v)});
  }
  std::ranges::stable_sort(moves, {}, &Move::score);
  return moves;
}

// What may lower a peak: kept values are dropped, and what is held between two uses is made again for each.
std::vector<LocalSearch::Move> LocalSearch::reliefs(const Choice& choice) const {
  std::vector<Move> moves = drops(choice);
  const ByOp<std::uint32_t>& reruns = evaluator_.reruns();
  for (const ValueId v : model_.droppable_values) {
    const bool held = choice.labels[v] == Label::kHold && reruns[model_.producer[v]] > 0;
    if (model_.weight[v] <= tiny_bytes_ || (!held && choice.labels[v] != Label::kKeep)) continue;
    if (!held && often_read_[v] != 0) moves.push_back({v, Label::kRelease, dearness(v)});
    moves.push_back({v, Label::kDiscard, (held ? 1 : kTwice) * dearness(v)});
    if (held && often_read_[v] != 0) moves.push_back({v, Label::kLater, dearness(v)});
  }
  std::ranges::stable_sort(moves, {}, &Move::score);
  return moves;
}

void LocalSearch::take_as_base(const Choice& choice) {
  base_ = choice;
  changes_.clear();
  incremental_.rebase(base_);
}

void LocalSearch::change(const Move& move) {
  const auto it = std::ranges::find(changes_, move.value, &Change::value);
  if (it != changes_.end()) {
    it->label = move.label;
  } else {
    changes_.push_back({move.value, move.label});
  }
}

// The base with its changes and one more.
Cost LocalSearch::attempt(const Move& move, std::int64_t limit_bytes) {
  const std::vector<Change> before = changes_;
  change(move);
  Cost cost;
  if (is_incremental_) cost = incremental_.attempt(changes_, limit_bytes);
  if (!is_incremental_ || !pool_.is_beaten(cost)) {
    Choice choice = base_;
    for (const Change& c : changes_) choice.labels[c.value] = c.label;
    if (!is_incremental_) cost = evaluator_.evaluate(choice, limit_bytes);
    pool_.offer(cost, choice);
  }
  changes_ = before;
  return cost;
}

bool LocalSearch::repair(Choice& choice, std::int64_t budget_bytes) {
  constexpr std::size_t kTries = 24;
  constexpr auto kNoLimit = std::numeric_limits<std::int64_t>::max();
  Cost cost = judge(choice, kNoLimit);
  if (cost == Cost{}) return false;
  double over = excess(budget_bytes);
  take_as_base(choice);
  while (cost.peak_bytes > budget_bytes) {
    (void)evaluator_.evaluate(choice);  // for its reruns
    if (changes_.size() > kMostChanges) take_as_base(choice);
    double best_ratio = 0;
    std::optional<Move> best;
    Cost best_cost;
    double best_over = 0;
    std::size_t tried = 0;
    for (const Move& move : reliefs(choice)) {
      if (out_of_work_()) return false;
      if (tried >= kTries && best) break;
      const Cost now = attempt(move, kNoLimit);
      if (now == Cost{}) continue;
      const double left = is_incremental_ ? incremental_.excess(budget_bytes) : excess(budget_bytes);
      if (left >= over) continue;
      ++tried;
      const double ratio = (over - left) / static_cast<double>(std::max<std::int64_t>(1, now.time_ns - cost.time_ns));
      if (ratio <= best_ratio) continue;
      best_ratio = ratio;
      best = move;
      best_cost = now;
      best_over = left;
    }
    if (!best) {
      if (!reorder_ || !orders_.improve(choice, budget_bytes)) return false;
      cost = judge(choice, kNoLimit);
      over = excess(budget_bytes);
      take_as_base(choice);
      continue;
    }
    choice.labels[best->value] = best->label;
    change(*best);
    cost = best_cost;
    over = best_over;
  }
  return true;
}

LocalSearch::Sketch LocalSearch::sketch(std::int64_t budget_bytes) const {
  Sketch sketch;
  const auto profile = evaluator_.profile();
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t bytes : profile) sketch.room.push_back(least = std::min(least, budget_bytes - bytes));
  sketch.first_rerun = evaluator_.first_rerun();
  return sketch;
}

bool LocalSearch::may_fit(const Sketch& sketch, const Move& move, std::int64_t freed_bytes) const {
  if (move.label != Label::kKeep) return true;
  const OpId op = model_.producer[move.value];
  std::int64_t more = model_.weight[move.value] - freed_bytes;
  for (const ValueId v : model_.inputs(op)) more -= model_.weight[v];
  const std::uint32_t turn = sketch.first_rerun[op];
  return turn == 0 || more <= sketch.room[std::min<std::size_t>(turn, sketch.room.size()) - 1];
}

std::int64_t LocalSearch::fill(Choice& choice, std::int64_t budget_bytes) {
  Cost cost = judge(choice, budget_bytes);
  if (cost == Cost{}) return cost.time_ns;
  Sketch now = sketch(budget_bytes);
  const std::vector<Move> moves = keeps(choice);
  if (!moves.empty()) take_as_base(choice);
  for (const Move& move : moves) {
    if (out_of_work_()) break;
    if (!may_fit(now, move, 0)) continue;
    const Cost other = attempt(move, budget_bytes);
    if (other.time_ns >= cost.time_ns) continue;
    choice.labels[move.value] = move.label;
    change(move);
    cost = evaluator_.evaluate(choice, budget_bytes);
    now = sketch(budget_bytes);
    if (changes_.size() > kMostChanges) take_as_base(choice);
  }
  return cost.time_ns;
}

// With one value dropped from the base, keeps more expensive ones in its place until that is faster than `time_ns`.
bool LocalSearch::replace(const Move& drop, const Sketch& sketch, std::span<const Move> keeps, std::int64_t time_ns,
                          std::int64_t budget_bytes) {
  constexpr std::size_t kTries = 24;
  changes_.clear();
  const Cost cost = attempt(drop, budget_bytes);
  if (cost == Cost{}) return false;
  change(drop);
  std::int64_t best = cost.time_ns;
  std::size_t tries = 0;
  for (const Move& keep : keeps) {
    if (best < time_ns) return true;
    if (2 * keep.score < static_cast<double>(cost.time_ns - time_ns) || tries >= kTries || out_of_work_()) break;
    if (keep.value == drop.value || !may_fit(sketch, keep, model_.weight[drop.value])) continue;
    ++tries;
    const std::int64_t time = attempt(keep, budget_bytes).time_ns;
    if (time >= best) continue;
    best = time;
    change(keep);
  }
  return best < time_ns;
}

std::int64_t LocalSearch::swap(Choice& choice, std::int64_t time_ns, std::int64_t budget_bytes) {
  std::vector<Move> dear;
  Sketch now;
  const auto look = [&] {
    (void)evaluator_.evaluate(choice);
    now = sketch(budget_bytes);
    dear = keeps(choice);
    take_as_base(choice);
  };
  look();
  for (const Move& drop : drops(choice)) {
    if (out_of_work_()) return time_ns;
    if (choice.labels[drop.value] != Label::kKeep) continue;
    if (!replace(drop, now, dear, time_ns, budget_bytes)) continue;
    for (const Change& c : changes_) choice.labels[c.value] = c.label;
    time_ns = fill(choice, budget_bytes);
    look();
  }
  return time_ns;
}

void LocalSearch::polish(Choice& choice, std::int64_t budget_bytes, bool reorder) {
  std::int64_t time = fill(choice, budget_bytes);
  for (std::int64_t before = time + 1; time < before && !out_of_work_();) {
    before = time;
    time = swap(choice, time, budget_bytes);
    if (reorder && orders_.improve(choice, budget_bytes - budget_bytes / kRoom)) time = fill(choice, budget_bytes);
  }
}

// splitmix64 from a fixed seed: equal input, equal kicks.
std::size_t LocalSearch::random(std::size_t bound) {
  std::uint64_t z = random_ += 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
  return static_cast<std::size_t>((z ^ (z >> 31U)) % std::max<std::size_t>(1, bound));
}

void LocalSearch::disturb(Choice& choice) {
  const std::vector<ValueId>& values = model_.droppable_values;
  for (std::size_t left = 1 + random(4), tries = 0; left > 0 && tries < 50; ++tries) {
    const ValueId v = values[random(values.size())];
    if (model_.weight[v] <= tiny_bytes_) continue;
    const auto label = static_cast<Label>(random(kLabels));
    if (label == choice.labels[v]) continue;
    choice.labels[v] = label;
    --left;
  }
  if (reorder_ && random(2) == 0) orders_.disturb(choice, random(std::numeric_limits<std::uint32_t>::max()));
}

// Walks on from a result that is nearly as good as the best, and back to the best every now and then.
void LocalSearch::kick(std::int64_t budget_bytes, std::size_t rounds) {
  constexpr std::size_t kWalk = 24;
  if (model_.droppable_values.empty()) return;
  random_ = 0;
  Choice current;
  for (std::size_t failed = 0; failed < rounds && !out_of_work_(); ++failed) {
    const auto best = pool_.fastest(budget_bytes);
    if (best == pool_.entries().end()) return;
    const std::int64_t time = best->second.time_ns;
    if (time <= model_.step_time_ns) return;
    if (failed % kWalk == 0) current = best->second.choice;
    Choice choice = current;
    disturb(choice);
    if (!repair(choice, budget_bytes)) continue;
    const std::int64_t now = fill(choice, budget_bytes);
    if (now - now / kNear > time) continue;
    polish(choice, budget_bytes, /*reorder=*/false);
    current = std::move(choice);
    if (pool_.fastest(budget_bytes)->second.time_ns < time) failed = 0;
  }
}

void LocalSearch::improve(std::int64_t budget_bytes) {
  constexpr std::size_t kFromAbove = 6;
  std::vector<Choice> starts;
  const auto below = pool_.fastest(budget_bytes);
  if (below != pool_.entries().end()) starts.push_back(below->second.choice);
  for (auto it = pool_.entries().upper_bound(budget_bytes); it != pool_.entries().end(); ++it) {
    if (starts.size() <= kFromAbove) starts.push_back(it->second.choice);
  }
  for (Choice& choice : starts) {
    if (!out_of_work_() && repair(choice, budget_bytes)) (void)fill(choice, budget_bytes);
  }
  for (const bool reorder : {false, true}) {
    const auto best = pool_.fastest(budget_bytes);
    if ((reorder && !reorder_) || out_of_work_() || best == pool_.entries().end()) return;
    Choice choice = best->second.choice;
    polish(choice, budget_bytes, reorder);
  }
}

}  // namespace reprise::detail
