// What a choice of labels costs, without building the plan: the inner loop of `auto`.
//
// A choice is a label per droppable value and an order of the backward ops. Forward runs as captured. Before each
// backward op, whatever it misses is computed again, on demand and recursively:
//
//   kKeep     lives from forward to its last use
//   kHold     is dropped after forward; once computed again it stays to its last use
//   kDiscard  is dropped after forward and after each demand
//   kRelease  lives from forward to its first use in backward, then is dropped; once computed again it stays
//   kLater    is dropped after forward and after the first demand; once computed again for another it stays
//
// On the chain x -> a -> b -> c with backward ops C (reads c, b), B (reads b, a), A (reads a, x), all of a, b, c
// dropped: with kHold `x a b c | a b c C B A`, with a discarded `x a b c | a b c C a B a A`.
//
// Frees follow from liveness. Scanning the runs from the last to the first, the values needed later are known exactly,
// and so are the bytes at each run: one pass makes the runs, one pass back finds the peak. O(reads of all runs).
// The result is that of simulate(place_frees(runs)); only where a buffer update cannot run in place it may be above.
// Tested by tests/unit/solve/auto/evaluator_test.cc.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "solve/auto/step_model.h"

namespace reprise::detail {

enum class Label : std::uint8_t { kKeep, kHold, kDiscard, kRelease, kLater };
inline constexpr std::size_t kLabels = 5;

struct Choice {
  std::vector<Label> labels;         // by value; of those that are not droppable, ignored
  std::vector<std::uint32_t> order;  // of the backward ops

  friend bool operator==(const Choice&, const Choice&) = default;
};

// Everything kept, backward as captured.
[[nodiscard]] Choice plain_choice(const StepModel& model);

struct Cost {
  std::int64_t peak_bytes = std::numeric_limits<std::int64_t>::max();
  std::int64_t time_ns = std::numeric_limits<std::int64_t>::max();

  friend bool operator==(const Cost&, const Cost&) = default;
};

class Evaluator {
 public:
  explicit Evaluator(const StepModel& model);

  // Both numbers at their largest where the choice makes more runs than are worth looking at, or, with `limit_bytes`,
  // as soon as the peak is seen to be above it.
  [[nodiscard]] Cost evaluate(const Choice& choice,
                              std::int64_t limit_bytes = std::numeric_limits<std::int64_t>::max());

  // Of the last choice evaluated to its end.
  [[nodiscard]] std::vector<OpId> runs() const;
  // Bytes at the highest instant before and during the i-th backward op of the order; front() is the caller's op.
  [[nodiscard]] std::span<const std::int64_t> profile() const { return profile_; }
  // Per op: how often the last choice ran it again.
  [[nodiscard]] std::span<const std::uint32_t> reruns() const { return reruns_; }
  // Per op that ran again: the slot at which it did first.
  [[nodiscard]] std::span<const std::uint32_t> first_rerun() const { return first_rerun_; }
  // Work done since the beginning, in reads of runs.
  [[nodiscard]] std::size_t work() const { return work_; }

 private:
  struct Run {
    std::uint32_t op;
    bool again;
  };
  struct Frame {
    std::uint32_t op;
    std::uint32_t next;
  };
  [[nodiscard]] bool make_runs(const Choice& choice);
  void demand(std::uint32_t op, const Choice& choice);
  void run_again(std::uint32_t op, const Choice& choice);
  // Whether the value is there to be read; one that is released at its first use is then gone after the slot.
  [[nodiscard]] bool read(std::uint32_t value);
  [[nodiscard]] Cost scan(std::int64_t limit_bytes);
  [[nodiscard]] bool runs_in_place(const Run& run) const;

  const StepModel& model_;
  std::size_t most_runs_;
  std::int64_t time_ns_ = 0;
  std::vector<Run> runs_;
  std::vector<std::uint32_t> slot_end_;  // by place in the order, the end of its runs; first the caller's op
  enum Presence : std::uint8_t { kAbsent, kPresent, kToRelease };
  std::vector<std::uint8_t> present_;
  std::vector<std::uint32_t> passing_;  // present up to the end of the slot only
  std::vector<Frame> stack_;
  std::vector<std::uint8_t> needed_;
  std::vector<std::int64_t> profile_;
  std::vector<std::uint32_t> reruns_;
  std::vector<std::uint32_t> first_rerun_;
  std::size_t work_ = 0;
};

}  // namespace reprise::detail
