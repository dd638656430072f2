// What can still become of a lower-set sequence that has reached a set L with some overhead and cached bytes.
//
//   least(L)  the fewest cached bytes with which L can be reached (cache_search.h)
//   room(L)   the most cached bytes with which V can still be reached from L
//   rest(L)   no way from L to V adds less overhead, even beginning with least(L)
//
// least and room are exact, so a set is useful (lies on some sequence within the budget) exactly when least <= room.
// Each is one pass over the pairs of the family, room and rest from V down.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "solve/lower_sets/cache_search.h"
#include "solve/lower_sets/transitions.h"

namespace reprise::detail {

struct BoundOptions {
  std::int64_t budget_bytes = 0;
  bool most = false;   // the most overhead is sought: overheads are negated throughout
  bool memory = true;  // find room
  bool time = true;    // find rest
  std::function<bool()> should_stop{};
};

class SequenceBounds {
 public:
  SequenceBounds(const Transitions& transitions, BoundOptions options);

  [[nodiscard]] bool feasible() const { return feasible_; }
  [[nodiscard]] bool stopped() const { return stopped_; }
  [[nodiscard]] bool useful(SetId set) const { return (useful_[set / 64] >> (set % 64) & 1U) != 0; }
  [[nodiscard]] std::int64_t rest(SetId set) const { return rest_[set]; }

  [[nodiscard]] std::int64_t overhead(SetId from, SetId to, std::int64_t cached_time) const {
    const std::int64_t overhead = transitions_.overhead(from, to, cached_time);
    return options_.most ? -overhead : overhead;
  }
  // Most cached bytes at `from` with which the transition to `to`, and the way on from there, can fit.
  [[nodiscard]] std::int64_t most_cached(SetId from, SetId to, std::int64_t cached_bytes) const {
    const std::int64_t pass = options_.budget_bytes - transitions_.pass_bytes(from, to);
    return std::min(pass, room_[to] - cached_bytes);
  }
  // None of the 64 sets of a word has a transition to `to`.
  [[nodiscard]] bool beyond_budget(std::size_t word, SetId to) const {
    return smallest_key_[word] > options_.budget_bytes - 2 * family_.bytes(to) - family_.back_bytes(to);
  }

 private:
  [[nodiscard]] bool stop();
  void mark_reachable();
  void find_room();
  void find_rest();

  const Transitions& transitions_;
  const LowerSetFamily& family_;
  BoundOptions options_;
  bool feasible_ = false;
  bool stopped_ = false;
  std::vector<std::int64_t> least_;
  std::vector<std::int64_t> room_;
  std::vector<std::int64_t> rest_;
  std::vector<std::uint64_t> useful_;
  std::vector<std::int64_t> smallest_key_;  // of least(L) - 2 M(L) over 64 sets
};

}  // namespace reprise::detail
