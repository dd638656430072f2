// Sequences of least (or most) overhead within a budget, for times of any size.
//
// The past of a sequence matters through two numbers, the overhead so far and the bytes cached so far; going from L to
// L' adds to both and is allowed when cached + pass_bytes(L, L') <= budget. Two searches walk over the sets in order
// of size, keeping per set what is not beaten in both numbers:
//
//   table_search.cc    indexes by overhead, as the paper does: fastest where all overheads are small integers
//   partial_search.cc  keeps partial sequences as (overhead, cached): for times of any size, say nanoseconds
//
// Both aim at a total: what cannot end at or below the aim is dropped (rest, sequence_bounds.h); the aim starts at the
// least conceivable and its distance doubles until a sequence is found, which is then optimal. The most overhead is the
// least of the negated one.
//
// Where partials or entries would be more than max_partials, times are rounded to a unit of which at most a few
// thousand make up the whole, in favour of the objective, and the table is used. Its optimum then bounds the true one,
// so the error of the answer is known: true overhead minus the rounded optimum.
//
// Kusumoto et al., NeurIPS 2019, "exact and approximate DP". Tested by tests/oracle (all sequences of all small graphs)
// and tests/property (all combinations of prunings agree, rounding keeps its word).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "solve/lower_sets/cache_search.h"
#include "solve/lower_sets/sequence_bounds.h"
#include "solve/lower_sets/transitions.h"
#include "solve/planner_knobs.h"

namespace reprise::detail {

struct OverheadOptions {
  std::int64_t budget_bytes = 0;
  bool most = false;  // most overhead instead of least
  Prunings prunings{};
  std::optional<std::int64_t> known_overhead{};  // of some sequence within the budget: no need to look beyond
  std::size_t max_partials = 0;
  std::int64_t max_units = 0;  // round to at most this many units at once, where a good sequence will do; 0: be exact
  std::function<bool()> should_stop{};
};

struct OverheadResult {
  std::optional<SetSequence> sequence{};  // nothing: infeasible, stopped, or too many partials
  bool stopped = false;
  bool too_many_partials = false;
  std::int64_t overhead_error = 0;
  std::size_t partials = 0;
};

[[nodiscard]] OverheadResult extreme_overhead_sequence(const Transitions& transitions, const OverheadOptions& options);

// What both searches use.
struct SearchContext {
  SearchContext(const Transitions& transitions, const OverheadOptions& options);
  [[nodiscard]] bool stop();

  const Transitions& transitions;
  const LowerSetFamily& family;
  const OverheadOptions& options;
  SequenceBounds bounds;
  bool stopped = false;
};

// Totals to aim at: a little above the least at first, then each time twice as far from it, but past the smallest total
// that was dropped, and never past one that is known to be reachable.
class Aim {
 public:
  Aim(const SequenceBounds& bounds, const OverheadOptions& options);
  [[nodiscard]] std::int64_t total() const { return total_; }
  void raise(std::int64_t smallest_dropped);

 private:
  std::int64_t least_;
  std::int64_t known_;
  std::int64_t total_;
};

// Exact. Leaves `sequence` empty and sets too_many_partials if there would be more than max_partials.
[[nodiscard]] OverheadResult partial_search(const Transitions& transitions, const OverheadOptions& options);

// Exact, for small integer times: rows are as long as the time of the whole view. Too many partials: as above.
// REQUIRES: bytes of the whole view below 2^51, so that their sums are exact as doubles.
[[nodiscard]] OverheadResult table_search(const Transitions& transitions, const OverheadOptions& options);

}  // namespace reprise::detail
