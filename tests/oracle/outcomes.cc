#include "oracle/outcomes.h"

#include <algorithm>

namespace reprise::test {
namespace {

bool has(Mask nodes, int v) { return (nodes >> v & 1U) != 0; }

Mask preds_of(const Dag& dag, int v) {
  Mask found = 0;
  for (const int p : dag.preds[v]) found |= 1U << p;
  return found;
}

std::vector<Mask> all_lower_set_masks(const Dag& dag) {
  std::vector<Mask> found;
  for (Mask mask = 0; mask < (1U << dag.size()); ++mask) {
    bool closed = true;
    for (int v = 0; v < dag.size(); ++v) closed = closed && (!has(mask, v) || (preds_of(dag, v) & ~mask) == 0);
    if (closed) found.push_back(mask);
  }
  return found;
}

std::vector<Mask> ancestor_masks(const Dag& dag) {
  std::vector<Mask> closed;
  for (int v = 0; v < dag.size(); ++v) {
    Mask mask = 1U << v;
    for (const int p : dag.preds[v]) mask |= closed[p];
    closed.push_back(mask);
  }
  closed.push_back(0);
  closed.push_back((1U << dag.size()) - 1);
  return closed;
}

template <typename T>
void sort_once(std::vector<T>& items) {
  std::ranges::sort(items);
  items.erase(std::unique(items.begin(), items.end()), items.end());
}

}  // namespace

Outcomes::Outcomes(const Dag& dag, Family family)
    : dag_(dag), whole_((1U << dag.size()) - 1), constants_(std::size_t{1} << dag.size()) {
  family_ = family == Family::kAllLowerSets ? all_lower_set_masks(dag) : ancestor_masks(dag);
  sort_once(family_);
  for (const Mask lower_set : family_) add_constants(dag, lower_set);
  extend(0, {});
  sort_once(outcomes_);
  sort_once(pass_values_);
}

void Outcomes::add_constants(const Dag& dag, Mask lower_set) {
  Constants& c = constants_[lower_set];
  c.bytes = sum(dag.bytes, lower_set);
  c.time = sum(dag.time, lower_set);
  Mask fed = 0;     // succ(L) - L
  Mask beside = 0;  // pred(succ(L)) - L
  for (int w = 0; w < dag.size(); ++w) {
    if (has(lower_set, w)) continue;
    c.boundary |= preds_of(dag, w) & lower_set;
    if ((preds_of(dag, w) & lower_set) == 0) continue;
    fed |= 1U << w;
    beside |= preds_of(dag, w) & ~lower_set;
  }
  c.back = sum(dag.bytes, fed) + sum(dag.bytes, beside);
}

std::int64_t Outcomes::sum(const std::vector<std::int64_t>& costs, Mask nodes) const {
  std::int64_t total = 0;
  for (int v = 0; v < dag_.size(); ++v) total += has(nodes, v) ? costs[v] : 0;
  return total;
}

Outcome Outcomes::step(Outcome so_far, Mask from, Mask to) const {
  const Constants& a = constants_[from];
  const Constants& b = constants_[to];
  so_far.peak = std::max(so_far.peak, so_far.cached + 2 * (b.bytes - a.bytes) + b.back);
  so_far.kept_overhead = so_far.overhead;
  so_far.overhead += b.time - a.time - sum(dag_.time, b.boundary & ~from);
  so_far.cached += sum(dag_.bytes, b.boundary & ~from);
  return so_far;
}

void Outcomes::extend(Mask from, const Outcome& so_far) {
  if (from == whole_) {
    ++num_sequences_;
    outcomes_.push_back(so_far);
    return;
  }
  for (const Mask to : family_) {
    if ((from & ~to) != 0 || from == to) continue;
    pass_values_.push_back(so_far.cached + 2 * (constants_[to].bytes - constants_[from].bytes) + constants_[to].back);
    extend(to, step(so_far, from, to));
  }
}

Outcome Outcomes::outcome(const std::vector<Mask>& sequence) const {
  Outcome so_far;
  Mask from = 0;
  for (const Mask to : sequence) {
    so_far = step(so_far, from, to);
    from = to;
  }
  return so_far;
}

std::vector<std::int64_t> Outcomes::peaks() const {
  std::vector<std::int64_t> found;
  for (const Outcome& o : outcomes_) found.push_back(o.peak);
  sort_once(found);
  return found;
}

std::int64_t Outcomes::smallest_budget() const { return outcomes_.front().peak; }

std::optional<std::int64_t> Outcomes::least_overhead(std::int64_t budget, bool keep_last) const {
  std::optional<std::int64_t> best;
  for (const Outcome& o : outcomes_) {
    const std::int64_t overhead = keep_last ? o.kept_overhead : o.overhead;
    if (o.peak <= budget && (!best || overhead < *best)) best = overhead;
  }
  return best;
}

std::optional<std::int64_t> Outcomes::most_overhead(std::int64_t budget, bool keep_last) const {
  std::optional<std::int64_t> best;
  for (const Outcome& o : outcomes_) {
    const std::int64_t overhead = keep_last ? o.kept_overhead : o.overhead;
    if (o.peak <= budget && (!best || overhead > *best)) best = overhead;
  }
  return best;
}

std::optional<std::pair<std::int64_t, std::int64_t>> Outcomes::least_cache(std::int64_t budget, bool keep_last) const {
  std::optional<std::pair<std::int64_t, std::int64_t>> best;
  for (const Outcome& o : outcomes_) {
    const std::pair candidate{o.cached, keep_last ? o.kept_overhead : o.overhead};
    if (o.peak <= budget && (!best || candidate < *best)) best = candidate;
  }
  return best;
}

}  // namespace reprise::test
