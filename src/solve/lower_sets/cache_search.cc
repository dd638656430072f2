#include "solve/lower_sets/cache_search.h"

#include <algorithm>

#include "check.h"

namespace reprise::detail {
namespace {

struct CacheTable {
  std::vector<std::int64_t> least;     // cached bytes per set
  std::vector<std::int64_t> overhead;  // of the sequence that reaches it, least among those of least cached bytes
  std::vector<SetId> parent;
  std::int64_t smallest_refused = kUnreachable;  // no block pass that did not fit was smaller

  [[nodiscard]] bool feasible() const { return least.back() != kUnreachable; }
};

class CacheSearch {
 public:
  CacheSearch(const Transitions& transitions, std::int64_t budget)
      : transitions_(transitions), family_(transitions.family()), budget_(budget) {}

  CacheTable run() {
    const std::size_t sets = family_.size();
    table_.least.assign(sets, kUnreachable);
    table_.overhead.assign(sets, 0);
    table_.parent.assign(sets, 0);
    key_.assign(sets, 0);
    alive_.assign((sets + 63) / 64, 0);
    smallest_key_.assign(alive_.size(), kUnreachable);
    table_.least[0] = 0;
    reach(0);
    for (SetId to = 1; to < sets; ++to) visit(to);
    return std::move(table_);
  }

 private:
  void reach(SetId set) {
    key_[set] = table_.least[set] - 2 * family_.bytes(set);
    alive_[set / 64] |= std::uint64_t{1} << (set % 64);
    smallest_key_[set / 64] = std::min(smallest_key_[set / 64], key_[set]);
  }

  void visit(SetId to) {
    const std::int64_t pass = 2 * family_.bytes(to) + family_.back_bytes(to);
    const std::int64_t room = budget_ - pass;
    std::int64_t best = kUnreachable;
    std::int64_t best_overhead = 0;
    SetId parent = 0;
    std::int64_t refused = kUnreachable;
    const auto skip = [&](std::size_t word) {
      if (smallest_key_[word] <= room) return false;
      refused = std::min(refused, smallest_key_[word]);
      return true;
    };
    transitions_.for_each_part(to, alive_, skip, [&](const Part& part) {
      part.for_each([&](SetId from) {
        if (key_[from] > room) {
          refused = std::min(refused, key_[from]);
          return;
        }
        const std::int64_t cached = table_.least[from] + part.cached_bytes;
        if (cached > best) return;
        const std::int64_t overhead = table_.overhead[from] + transitions_.overhead(from, to, part.cached_time);
        if (cached == best && overhead >= best_overhead) return;
        best = cached;
        best_overhead = overhead;
        parent = from;
      });
    });
    if (refused != kUnreachable) table_.smallest_refused = std::min(table_.smallest_refused, refused + pass);
    if (best == kUnreachable) return;
    table_.least[to] = best;
    table_.overhead[to] = best_overhead;
    table_.parent[to] = parent;
    reach(to);
  }

  const Transitions& transitions_;
  const LowerSetFamily& family_;
  std::int64_t budget_;
  CacheTable table_;
  std::vector<std::int64_t> key_;  // least - 2 M(L): what a set brings into the test of a block pass
  std::vector<std::uint64_t> alive_;
  std::vector<std::int64_t> smallest_key_;  // of 64 sets
};

CacheTable search(const Transitions& transitions, std::int64_t budget) {
  return CacheSearch(transitions, budget).run();
}

SetSequence read_back(const Transitions& transitions, const CacheTable& table) {
  SetSequence sequence;
  for (SetId set = transitions.family().whole(); set != 0; set = table.parent[set]) sequence.push_back(set);
  std::ranges::reverse(sequence);
  return sequence;
}

// Largest block pass of the sequence the table holds.
std::int64_t reached_peak(const Transitions& transitions, const CacheTable& table) {
  std::int64_t peak = 0;
  SetId from = 0;
  for (const SetId to : read_back(transitions, table)) {
    peak = std::max(peak, table.least[from] + transitions.pass_bytes(from, to));
    from = to;
  }
  return peak;
}

}  // namespace

std::optional<SetSequence> least_cache_sequence(const Transitions& transitions, std::int64_t budget_bytes) {
  const CacheTable table = search(transitions, budget_bytes);
  if (!table.feasible()) return std::nullopt;
  return read_back(transitions, table);
}

std::optional<std::int64_t> smallest_formula_budget(const Transitions& transitions,
                                                    std::optional<std::int64_t> known_feasible,
                                                    const std::function<bool()>& should_stop) {
  const std::int64_t whole = 2 * transitions.family().bytes(transitions.family().whole());
  std::int64_t low = 0;  // nothing below it is feasible
  std::int64_t high = known_feasible.value_or(whole);
  std::int64_t budget = known_feasible ? high - 1 : low + (high - low) / 2;
  while (low < high) {
    if (should_stop && should_stop()) return std::nullopt;
    const CacheTable table = search(transitions, budget);
    if (table.feasible()) {
      high = reached_peak(transitions, table);
    } else {
      REPRISE_CHECK(table.smallest_refused > budget);
      low = std::min(table.smallest_refused, high);
    }
    budget = low + (high - low) / 2;
  }
  return high;
}

std::vector<std::int64_t> least_cached_bytes(const Transitions& transitions, std::int64_t budget_bytes) {
  return search(transitions, budget_bytes).least;
}

}  // namespace reprise::detail
