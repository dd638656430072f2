// What no plan can beat: a lower bound on time at a budget, and a floor below every budget that works.
//
// Fix the order in which backward ops run for the first time. When op a does, a plan holds a's inputs, outputs and
// workspace, and some set W of other values within budget - footprint(a). Whatever later ops need of what was made
// before is in W or is computed again after a. With a price of q per byte, the cheapest W is a least cut: keep a value
// for q * bytes or run its op again for its time, which needs its inputs. So for every q >= 0
//
//   time computed again after a  >=  cut(a, q) - q * (budget - footprint(a))
//
// for any number of recomputations, also of backward ops. Example: two values of 10 bytes and times 3 and 5 are needed
// after a, which leaves 12 bytes. At q = 0.3 the cut is 3 + 3, less 0.3 * 12: at least 2.4 ns, so 3, are spent again.
//
// Between two ops a and b of the order the same holds for what is needed up to b, and stretches that do not overlap add
// up; a dynamic program takes the best division. Cuts do not depend on the budget: they are made once, at a grid of
// prices, and any budget is then answered by arithmetic. To this comes the time of everything that must run at least
// once. Ops that no output needs are not counted, and forward ops may run as late as they like.
//
// Plans that store values in the host's memory have a third way: X bytes leave before a begins and return after it
// ends. So R, the time computed again after a, is at least cut(a, q) - q * (budget - footprint(a) + X). X is bounded by
// what the link carries before a, by what it carries after a, and by the host's budget. With weights w1 and w2 between
// 0 and 1 such that (1 - w2) * q <= w1 / down + w2 / up, X drops out:
//
//   time before a  >=  (1 - w1) * (time of what runs before a)      + w1 * X / down
//   time after a   >=  (1 - w2) * (time of what runs after a  + R)  + w2 * X / up
//
// For a stretch that is not the first, w1 = 0. Example: 100 bytes too many, 1 ns a byte to compute again, q = 1; before
// a 30 ns, after it 60 ns, 1 byte per ns each way. With w1 = 0 and w2 = 1/2 at least 30 + (60 + 100) / 2 = 110 ns pass:
// 20 more than without the excess.
//
// The floor is the most that any single op needs with what is pinned by then; it holds for every order.
// Tested by tests/oracle/lower_bound_test.cc against all schedules of small steps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "solve/auto/step_model.h"

namespace reprise::detail {

class LowerBound {
 public:
  // `order` is the order of the backward ops. `plain_profile` has the bytes at the caller's op and at each backward op
  // in this order without recomputation; it guides the division. `work` is the number of arcs that may be looked at;
  // the bound is valid however few they are, and better with more.
  // If plans may carry, an output of the step may be on its way back when the step ends, so nothing is demanded of it.
  LowerBound(const StepModel& model, std::vector<OpId> order, std::span<const std::int64_t> plain_profile,
             std::size_t work, bool may_carry = false);

  // No plan whose backward ops first run in that order takes less time within the budget.
  [[nodiscard]] std::int64_t time_ns(std::int64_t budget_bytes) const;
  // The same for plans that may carry. REQUIRES: may_carry.
  [[nodiscard]] std::int64_t time_ns(std::int64_t budget_bytes, const Link& link, std::int64_t host_budget_bytes) const;
  // No plan at all, in any order, has a lower peak.
  [[nodiscard]] std::int64_t floor_bytes() const { return floor_bytes_; }

 private:
  static constexpr std::uint32_t kNever = 0xFFFFFFFFU;
  struct Sample {
    double price;  // ns per byte
    double cut_ns;
  };
  struct Window {  // what is needed after turn `begin` up to turn `end`
    std::size_t begin;
    std::size_t end;
    std::vector<Sample> samples;
  };
  void find_needed();
  void need(OpId op, std::uint32_t turn);
  void find_floor();
  [[nodiscard]] std::int64_t footprint(OpId op) const;
  [[nodiscard]] OpId op_at(std::size_t turn) const;
  void choose_turns(std::span<const std::int64_t> plain_profile, std::size_t count);
  void sample(Window& window);
  [[nodiscard]] double room(const Window& window, std::int64_t budget_bytes) const;
  [[nodiscard]] double at_least(const Window& window, std::int64_t budget_bytes) const;
  [[nodiscard]] double first_run_ns(std::size_t begin, std::size_t end) const;
  [[nodiscard]] std::int64_t rounded(double again_ns) const;

  const StepModel& model_;
  std::vector<OpId> order_;
  ByOp<std::uint32_t> first_run_;  // the turn by which an op has run at the latest; kNever: not needed
  std::int64_t needed_time_ns_ = 0;
  std::int64_t pinned_bytes_ = 0;  // held from the caller's op on, whatever the plan
  std::int64_t floor_bytes_ = 0;
  std::vector<std::size_t> turns_;  // rising; the last is the end
  std::vector<Window> windows_;     // sorted by begin
  std::size_t work_ = 0;
  bool may_carry_ = false;
};

}  // namespace reprise::detail
