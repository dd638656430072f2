// Other orders of the backward ops. A gradient that nothing reads may be computed late, when its bytes no longer
// matter, or early, so that its inputs can be freed.
//
//   deferring_order  the captured order, but an op whose outputs nothing in backward reads waits while it would take
//                    more bytes than it frees. Example: a gradient of 400 MB from inputs of 7 MB waits to the end.
//   OrderSearch      at one budget: single ops moved as far up or down as their neighbours allow, or just past the
//                    turns that are at the budget; left there if that lowers the highest turns at no cost in time.
//
// `once` ops stay where they are. Tested by tests/unit/solve/auto/backward_order_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "solve/auto/evaluator.h"
#include "solve/auto/pool.h"
#include "solve/auto/step_model.h"

namespace reprise::detail {

// Ops that take at least `least_bytes` more than they free wait.
[[nodiscard]] std::vector<OpId> deferring_order(const StepModel& model, std::int64_t least_bytes);

class OrderSearch {
 public:
  OrderSearch(const StepModel& model, Evaluator& evaluator, Pool& pool, std::function<bool()> out_of_work);

  // Lowers the bytes above `target_bytes`, summed over the turns, at no cost in time. Returns whether anything was
  // gained.
  bool improve(Choice& choice, std::int64_t target_bytes);
  // Moves one op, chosen by `number`, to another place that its neighbours allow.
  void disturb(Choice& choice, std::size_t number);

 private:
  [[nodiscard]] double pressure(const Choice& choice, std::int64_t target_bytes, std::int64_t most_time_ns);
  [[nodiscard]] std::pair<std::size_t, std::size_t> range(const Choice& choice, std::size_t place) const;
  void find_places(const Choice& choice);

  const StepModel& model_;
  Evaluator& evaluator_;
  Pool& pool_;
  std::function<bool()> out_of_work_;
  std::vector<OpId> movable_;  // those with the most bytes first
  ByOp<std::uint32_t> place_;  // in the order
};

}  // namespace reprise::detail
