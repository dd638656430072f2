// Candidates from priced cuts: many prices over time, each one cut and one evaluation.
//
//   grid   prices of a few shapes (all at the caller's op, fading, even) times a grid of heights
//   aim    for one budget: begin with all of the price at the caller's op, as high as it takes; then raise it at the
//          backward ops where the plan is over the budget and lower it where there is room, by less each time
//
// Identical layers would tie and flip together; the shapes slope a little so that they do not.
// Tested by tests/unit/solve/auto/local_search_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "solve/auto/evaluator.h"
#include "solve/auto/pool.h"
#include "solve/auto/priced_cut.h"

namespace reprise::detail {

class PriceSearch {
 public:
  // Backward runs in the given order. `out_of_work` is asked before each cut.
  PriceSearch(const StepModel& model, Evaluator& evaluator, Pool& pool, std::span<const OpId> order,
              std::function<bool()> out_of_work);

  // `kept`: as in PricedCut::solve. `heights` per shape.
  void grid(const ByValue<std::uint8_t>& kept, std::size_t heights);
  void aim(std::int64_t budget_bytes, const ByValue<std::uint8_t>& kept, std::size_t rounds);
  void jitter(std::uint64_t seed, double part) { cut_.jitter(seed, part); }

  [[nodiscard]] std::size_t work() const { return cut_.work(); }

 private:
  [[nodiscard]] Cost judge(const ByValue<std::uint8_t>& kept);
  [[nodiscard]] double height_for(std::int64_t budget_bytes, const ByValue<std::uint8_t>& kept);
  void spread();
  void adjust(std::int64_t budget_bytes, double pace);

  Evaluator& evaluator_;
  Pool& pool_;
  PricedCut cut_;
  std::function<bool()> out_of_work_;
  Choice choice_;
  std::vector<double> cumulative_;  // by turn
  std::vector<double> price_;       // by bucket: neighbouring turns share a price
};

}  // namespace reprise::detail
