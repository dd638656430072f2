// The best labels when memory has a price: a least cut.
//
// Let C(t) be the price of holding one byte from the caller's op to the t-th backward op. A value that backward needs
// is either kept, for bytes * C(last use), or its op runs again, for its time and bytes * (C(last use) - C(first use)),
// or for its time at each use and nothing held in between. An op that runs again needs its inputs, so one choice pulls
// at the next. As a cut, on x -> [f] -> y with y read by backward:
//
//   source --time(f)--> f --keep(y)--> y --unlimited--> sink          x --unlimited--> f
//
// A value on the sink's side is there in backward; an op on the sink's side runs again. Cutting keep(y) keeps y,
// cutting time(f) makes it again, which puts x on the sink's side. Several outputs share their op's node. Values too
// small to matter are kept at no cost: forgetting the statistics of a batch norm would run all of it again.
//
// The price of a plan is exact only for what is directly read; what a recomputation reads is priced at the first use of
// what it makes. The evaluator judges the labels. Tested by tests/unit/solve/auto/priced_cut_test.cc.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "solve/auto/evaluator.h"
#include "solve/auto/max_flow.h"
#include "solve/auto/step_model.h"

namespace reprise::detail {

class PricedCut {
 public:
  // The cut for backward in this order.
  PricedCut(const StepModel& model, std::span<const OpId> order);

  // cumulative_price[t]: C(t) in ns per byte, t = 0 for the caller's op, then the backward ops; it never falls. `kept`,
  // if it is not empty, marks values that are kept whatever they cost.
  void solve(std::span<const double> cumulative_price, const ByValue<std::uint8_t>& kept, ByValue<Label>& labels);

  // From now on, keeping a value costs up to `part` more or less, at random but the same for the same seed, so that
  // identical layers no longer tie.
  void jitter(std::uint64_t seed, double part);

  // The least and the largest price at which a single value is worth dropping.
  [[nodiscard]] double least_price() const { return least_price_; }
  [[nodiscard]] double largest_price() const { return largest_price_; }
  [[nodiscard]] std::size_t work() const { return flow_.work(); }

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFU;
  struct Uses {
    std::uint32_t first = kNone;
    std::uint32_t last = 0;
    std::uint32_t count = 0;
  };
  void find_uses(std::span<const OpId> order);
  void find_price_range();
  void build();
  void price_op(OpId op, std::span<const double> price, ByValue<Label>& labels);

  const StepModel& model_;
  ByValue<Uses> direct_;  // reads of backward ops
  ByValue<Uses> uses_;    // the same, where there are none: reads of recomputations
  ByValue<std::uint8_t> tiny_;
  MaxFlow flow_;
  ByOp<std::uint32_t> op_node_;        // kNone: never again
  ByValue<std::uint32_t> value_node_;  // kNone: free or not wanted
  ByOp<std::uint32_t> op_arc_;
  ByValue<std::uint32_t> value_arc_;
  ByValue<double> factor_;  // of its price
  double least_price_ = 1e-6;
  double largest_price_ = 1;
};

}  // namespace reprise::detail
