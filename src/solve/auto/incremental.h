// What a few changed labels cost, without looking at the whole step again: the inner loop of the local search.
//
// The runs of a base choice are divided into windows of neighbouring ops. For each window the base remembers which
// values can be read before it, which are needed after it, its bytes, and per value the windows that touch it. A change
// is then followed twice:
//
//   forwards   runs are made again only in windows that touch a changed value, or one whose presence came to differ
//   backwards  bytes are added up again only in those windows, and in windows that touch a value which is now needed
//              longer or shorter; in all others the same values come and go, and their highest instant shifts by the
//              bytes of the values that differ
//
// Example: y (10 bytes) was kept and is now held. In one window its op runs again, so y is needed only from there, and
// x, which it reads (4 bytes), up to there: all windows between lose 10 bytes and gain 4, unseen.
//
// The answer is that of Evaluator::evaluate. Cost: a few windows instead of all, about 3 us instead of 50 at 1,200 ops.
// Tested by tests/unit/solve/auto/incremental_test.cc against the evaluator.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "solve/auto/evaluator.h"
#include "solve/auto/runs.h"
#include "solve/auto/step_model.h"

namespace reprise::detail {

class IncrementalEvaluator {
 public:
  struct Change {
    ValueId value;
    Label label;
  };

  explicit IncrementalEvaluator(const StepModel& model);

  // Takes the choice as the base. Returns false if it makes more runs than are worth looking at; then there is no base.
  bool rebase(const Choice& choice);
  // The base with these labels instead, each value named once; as Evaluator::evaluate. REQUIRES: a base.
  [[nodiscard]] Cost attempt(std::span<const Change> changes,
                             std::int64_t limit_bytes = std::numeric_limits<std::int64_t>::max());
  // Bytes above the budget, summed over the turns of the last attempt that came to its end.
  [[nodiscard]] double excess(std::int64_t budget_bytes) const;
  [[nodiscard]] std::size_t work() const { return work_; }

 private:
  struct Rewritten {  // a window with other runs than the base's
    std::size_t window;
    std::size_t runs_begin;
    std::size_t runs_end;
    std::size_t turn_ends;  // of its turns, in turn_ends_
  };
  struct Touches {  // of a value, in touch_list_
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };
  struct Dirty {
    ValueId value;
    Presence presence;
  };
  void divide();
  void make_base_runs();
  void scan_base();
  void find_touches();
  [[nodiscard]] std::span<const std::uint32_t> touches(ValueId value) const;
  [[nodiscard]] std::size_t next_touched(std::size_t from) const;
  [[nodiscard]] std::size_t last_touched(std::size_t up_to) const;
  [[nodiscard]] bool follow_forwards();
  void rewrite(std::size_t window);
  [[nodiscard]] Cost follow_backwards(std::int64_t limit_bytes);
  [[nodiscard]] std::int64_t rescan(std::size_t window, const Rewritten* other);

  // Windows: forward ops and the caller's op first, then turns of backward ops.
  [[nodiscard]] bool is_backward(std::size_t window) const { return window >= forward_windows_; }
  [[nodiscard]] std::span<const Run> base_runs(std::size_t window) const {
    return std::span(runs_).subspan(run_begin_[window], run_begin_[window + 1] - run_begin_[window]);
  }

  const StepModel& model_;
  RunMaker maker_;
  RunScan scan_;
  std::size_t work_ = 0;
  std::size_t most_runs_;

  // The base.
  ByValue<Label> labels_;
  std::vector<OpId> order_;
  std::size_t windows_ = 0;
  std::size_t forward_windows_ = 0;
  std::vector<std::uint32_t>
      turn_begin_;                        // by window, one more than there are: turns; 0 for forward, 1 the first after
  std::vector<std::uint32_t> run_begin_;  // by window, one more
  std::vector<Run> runs_;
  std::vector<std::uint32_t> turn_end_;        // by turn: the end of its runs
  std::vector<ByValue<Presence>> presence_;    // before each backward window, and at the end
  std::vector<ByValue<std::uint8_t>> needed_;  // before each window, and at the end
  std::vector<std::int64_t> live_;             // the same
  std::vector<std::int64_t> highest_;          // by window
  std::vector<std::int64_t> highest_before_;   // by window: of all before it
  std::vector<std::int64_t> riders_;           // by window: bytes of riders copied
  std::vector<std::int64_t> profile_;          // by turn
  std::int64_t all_riders_ = 0;
  std::int64_t again_ns_ = 0;
  std::vector<std::int64_t> again_in_;  // by window
  ByValue<Touches> touches_;
  std::vector<std::uint32_t> touch_list_;  // windows, rising

  // The attempt.
  std::span<const Change> changes_;
  std::vector<Change> before_;  // the base's labels of what was changed
  std::vector<Dirty> dirty_;
  std::vector<Rewritten> rewritten_;
  std::vector<std::uint32_t> turn_ends_;
  std::int64_t now_again_ns_ = 0;
  std::vector<ValueId> different_;     // values whose need is not the base's
  std::int64_t shift_ = 0;             // their bytes
  std::vector<std::int64_t> shifts_;   // by window, where it was not scanned
  std::vector<std::uint8_t> scanned_;  // by window
  std::vector<std::int64_t> now_;      // by turn, where its window was scanned; front(): of forward
};

}  // namespace reprise::detail
