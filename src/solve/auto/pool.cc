#include "solve/auto/pool.h"

#include <iterator>

namespace reprise::detail {

bool Pool::is_beaten(const Cost& cost) const {
  if (cost == Cost{}) return true;
  const auto rival = fastest(cost.peak_bytes);
  return rival != entries_.end() && rival->second.time_ns <= cost.time_ns;
}

bool Pool::offer(const Cost& cost, const Choice& choice) {
  if (is_beaten(cost)) return false;
  ++accepted_;
  auto it = entries_.insert_or_assign(cost.peak_bytes, Entry{cost.time_ns, choice}).first;
  for (++it; it != entries_.end() && it->second.time_ns >= cost.time_ns;) it = entries_.erase(it);
  return true;
}

std::map<std::int64_t, Pool::Entry>::const_iterator Pool::fastest(std::int64_t budget_bytes) const {
  const auto above = entries_.upper_bound(budget_bytes);
  return above == entries_.begin() ? entries_.end() : std::prev(above);
}

}  // namespace reprise::detail
