// Better labels by small changes, at one budget.
//
//   repair  over the budget: drop the values that take most off the excess for the time they cost, until it fits
//   fill    within the budget: keep what is computed again, the most expensive first, wherever there is room
//   swap    drop one kept value, then keep more expensive ones in its place; undone if nothing is gained
//   kick    disturb a few labels and places of the best choice, then all of this again
//
// Example: a (time 5, 10 bytes) and b (time 8, 11 bytes) are dropped and 12 bytes are free. Fill keeps b, the more
// expensive one. If a had been kept, there would be no room for b; the swap drops a, keeps b, and gains 3.
//
// Every change is judged by the evaluator, so it counts what recomputations pull in behind them. Work is counted in
// reads (evaluator.h). Tested by tests/unit/solve/auto/local_search_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "solve/auto/backward_order.h"
#include "solve/auto/evaluator.h"
#include "solve/auto/incremental.h"
#include "solve/auto/pool.h"
#include "solve/auto/step_model.h"

namespace reprise::detail {

class LocalSearch {
 public:
  struct Options {
    bool reorder = true;      // backward ops may move too (backward_order.h)
    bool incremental = true;  // changes are judged by what they change (incremental.h); the same answers for less work
  };
  // `out_of_work` is asked before each evaluation.
  LocalSearch(const StepModel& model, Evaluator& evaluator, Pool& pool, std::function<bool()> out_of_work,
              Options options);

  // From the pool's entries next to the budget; what is found goes into the pool.
  void improve(std::int64_t budget_bytes);

  // Returns whether the choice fits in the end.
  bool repair(Choice& choice, std::int64_t budget_bytes);
  // The choice fits. Returns its time.
  std::int64_t fill(Choice& choice, std::int64_t budget_bytes);
  // Disturbs the best choice at the budget here and there and improves it again, many times over.
  void kick(std::int64_t budget_bytes, std::size_t rounds);
  // Tries all of these moves in turn until nothing is gained; the choice fits.
  void polish(Choice& choice, std::int64_t budget_bytes, bool reorder);
  std::int64_t swap(Choice& choice, std::int64_t time_ns, std::int64_t budget_bytes);

  // Work done in addition to the evaluator's.
  [[nodiscard]] std::size_t work() const { return incremental_.work(); }

 private:
  using Change = IncrementalEvaluator::Change;
  struct Move {
    ValueId value;
    Label label;
    double score;
  };
  [[nodiscard]] Cost judge(const Choice& choice, std::int64_t limit_bytes);
  [[nodiscard]] double excess(std::int64_t budget_bytes) const;
  [[nodiscard]] double dearness(ValueId value) const;
  // A picture of the last choice that was judged to its end: where there is room, and what ran again where.
  struct Sketch {
    std::vector<std::int64_t> room;  // by turn: bytes below the budget, the least from the caller's op to it
    ByOp<std::uint32_t> first_rerun;
  };
  [[nodiscard]] Sketch sketch(std::int64_t budget_bytes) const;
  // Whether keeping the value may fit: it then lives on to where its op ran again, whose inputs it may set free.
  [[nodiscard]] bool may_fit(const Sketch& sketch, const Move& move, std::int64_t freed_bytes) const;
  void take_as_base(const Choice& choice);
  void change(const Move& move);
  [[nodiscard]] Cost attempt(const Move& move, std::int64_t limit_bytes);
  // Leaves its changes in changes_.
  [[nodiscard]] bool replace(const Move& drop, const Sketch& sketch, std::span<const Move> keeps, std::int64_t time_ns,
                             std::int64_t budget_bytes);
  [[nodiscard]] std::vector<Move> keeps(const Choice& choice) const;
  [[nodiscard]] std::vector<Move> drops(const Choice& choice) const;
  [[nodiscard]] std::vector<Move> reliefs(const Choice& choice) const;
  void disturb(Choice& choice);
  [[nodiscard]] std::size_t random(std::size_t bound);

  const StepModel& model_;
  Evaluator& evaluator_;
  Pool& pool_;
  std::function<bool()> out_of_work_;
  OrderSearch orders_;
  IncrementalEvaluator incremental_;
  bool reorder_;
  bool is_incremental_;
  Choice base_;
  std::vector<Change> changes_;  // to the base, so far
  std::int64_t tiny_bytes_ = 0;
  ByValue<std::uint8_t> often_read_;  // more than one op may read it after forward
  std::uint64_t random_ = 0;
};

}  // namespace reprise::detail
