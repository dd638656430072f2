#include "runtime/online/evict.h"

#include <algorithm>
#include <array>
#include <limits>

namespace reprise::online {
namespace {

// The costs of distinct components, each counted once. Beyond a few, one may be counted again.
class Components {
 public:
  void add(const Value& value) {
    if (value.resident || !value.absent_with) return;
    const AbsentSet* root = root_of(value.absent_with.get());
    const auto end = seen_.begin() + static_cast<std::ptrdiff_t>(count_);
    if (std::find(seen_.begin(), end, root) != end) return;
    if (count_ < seen_.size()) seen_[count_++] = root;
    cost_ns_ += root->cost_ns;
  }
  [[nodiscard]] double cost_ns() const { return cost_ns_; }

 private:
  std::array<const AbsentSet*, 16> seen_{};
  std::size_t count_ = 0;
  double cost_ns_ = 0;
};

double neighbours_cost_ns(const Value& value) {
  Components components;
  for (const Use& use : value.maker->uses) components.add(*use.value);
  for (const Use* use = value.readers; use != nullptr; use = use->next) {
    for (const Output& output : use->reader->outputs) {
      if (output.value != nullptr) components.add(*output.value);
    }
  }
  return components.cost_ns();
}

enum class Rank : std::uint8_t { kSpent, kAgain, kGhost, kForward, kBackward, kKept, kWaitedFor };

// What backward passes make is either read next, or a gradient, whose way back is the whole pass.
Rank rank_of(const Value& value) {
  if (value.waits > 0) return Rank::kWaitedFor;
  if (value.kept) return Rank::kKept;
  if (value.spent) return Rank::kSpent;
  if (value.again_at != kNotInStep) return Rank::kAgain;
  if (value.is_ghost()) return Rank::kGhost;
  return value.backward != 0 ? Rank::kBackward : Rank::kForward;
}

// The h of a value that a script makes again.
double planned_h(const Value& value, std::size_t next_call) {
  const std::size_t calls = value.again_at < next_call ? 1 : value.again_at - next_call + 1;
  return value.saved_ns_per_byte / static_cast<double>(calls);
}

}  // namespace

Value* cheapest(const Table& table, std::int64_t at_ns, std::size_t next_call) {
  Value* best = nullptr;
  Rank best_rank = Rank::kSpent;
  double least = std::numeric_limits<double>::infinity();
  for (Value* value : table.candidates()) {
    if (value->locks > 0) continue;
    const Rank rank = rank_of(*value);
    if (best != nullptr && rank > best_rank) continue;
    const bool is_first = best == nullptr || rank < best_rank;
    double h = 0;
    if (rank == Rank::kAgain) {
      h = planned_h(*value, next_call);
    } else if (rank != Rank::kSpent) {
      const auto age_ns = static_cast<double>(std::max<std::int64_t>(1, at_ns - value->last_read_ns));
      const double weight = static_cast<double>(value->bytes) * age_ns;
      if (!is_first && value->maker->cost_ns >= least * weight) continue;
      h = (value->maker->cost_ns + neighbours_cost_ns(*value)) / weight;
    }
    if (!is_first && h >= least) continue;
    best = value;
    best_rank = rank;
    least = h;
  }
  return best;
}

Value* largest_orphan(const Table& table) {
  Value* largest = nullptr;
  for (const auto& [storage, root] : table.roots()) {
    if (root->locks > 0 || root->held.use_count() > 1) continue;
    if (largest != nullptr && root->bytes <= largest->bytes) continue;
    std::int64_t dependent_bytes = 0;
    bool all_resident = true;
    for (const Value* value : held_dependents(*root)) {
      dependent_bytes += value->bytes;
      all_resident = all_resident && value->resident;
    }
    if (all_resident && dependent_bytes < root->bytes) largest = root;
  }
  return largest;
}

}  // namespace reprise::online
