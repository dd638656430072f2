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

#include "reprise/plan.h"
#include "solve/auto/runs.h"
#include "solve/auto/step_model.h"

namespace reprise::detail {

struct Choice {
  ByValue<Label> labels;    // ignored for values that are not droppable
  std::vector<OpId> order;  // of the backward ops

  friend bool operator==(const Choice&, const Choice&) = default;
};

// Everything kept, backward as captured.
[[nodiscard]] Choice plain_choice(const StepModel& model);

// The labels that follow from a plan: results of ops that run once are kept, of those that run twice held, of others
// discarded.
[[nodiscard]] Choice choice_of(const StepModel& model, const Plan& plan);

struct Cost {
  std::int64_t peak_bytes = std::numeric_limits<std::int64_t>::max();
  std::int64_t time_ns = std::numeric_limits<std::int64_t>::max();

  friend bool operator==(const Cost&, const Cost&) = default;
};

class Evaluator {
 public:
  explicit Evaluator(const StepModel& model);

  // Both numbers have their largest value if the choice makes more runs than are worth looking at, or, with
  // `limit_bytes`, as soon as the peak is known to be above it.
  [[nodiscard]] Cost evaluate(const Choice& choice,
                              std::int64_t limit_bytes = std::numeric_limits<std::int64_t>::max());

  // The runs of the last choice that was evaluated to its end.
  [[nodiscard]] std::vector<OpId> runs() const;
  // Bytes at the highest instant before and during the i-th backward op of the order; front() is the caller's op.
  [[nodiscard]] std::span<const std::int64_t> profile() const { return profile_; }
  // How often the last choice ran an op again.
  [[nodiscard]] const ByOp<std::uint32_t>& reruns() const { return reruns_; }
  // For an op that ran again, the turn at which it first did so.
  [[nodiscard]] const ByOp<std::uint32_t>& first_rerun() const { return first_rerun_; }
  // Work done since the beginning, in reads of runs.
  [[nodiscard]] std::size_t work() const { return work_; }

 private:
  [[nodiscard]] bool make_runs(const Choice& choice);
  [[nodiscard]] Cost scan(std::int64_t limit_bytes);

  const StepModel& model_;
  std::size_t most_runs_;
  RunMaker maker_;
  RunScan scan_;
  std::vector<std::uint32_t> turn_end_;  // by place in the order, the end of its runs; first the caller's op
  std::vector<std::int64_t> profile_;
  ByOp<std::uint32_t> reruns_;
  ByOp<std::uint32_t> first_rerun_;
  std::size_t work_ = 0;
};

// More runs than this are not worth looking at, nor is more time: no sum comes near the range of an integer.
[[nodiscard]] std::size_t most_runs(const StepModel& model);
inline constexpr std::int64_t kMostTime = 4 * Costs::kMaxTotalTime;

}  // namespace reprise::detail
