// Puts stores and fetches into a plan that needs too much memory, so that it fits a budget.
//
// A value has a *gap* where runs go by between two of its uses. In a gap it may be *away*: stored when it was made,
// freed in the gap, fetched before its next use. Example, three layers whose backward ops read a, b and c (100 bytes
// each), and a budget of 220 bytes:
//
//   before   F1       F2    F3 caller B3 fc    B2 fb    B1 fa
//   after    F1 store a  F2 free a  F3 caller B3 fc fetch a  B2 fb  B1 fa
//
//   1. store   right after the run that makes the value
//   2. free    as late as memory allows: where a run does not fit, values with open gaps are let go until it does
//   3. fetch   as early as a link of a given pace would need it, but no earlier than there is room for it
//
// What is never let go is not copied. Nothing here looks at the link of the costs: the plans are the same on every
// link, and only their times differ. Tested by tests/unit/solve/carry/placing_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "graph/by_id.h"
#include "reprise/costs.h"
#include "reprise/graph.h"
#include "reprise/plan.h"

namespace reprise::detail {

class Placing {
 public:
  // Which of the values with open gaps is let go next.
  enum class First : std::uint8_t {
    kMade,        // what was made first, and so has been stored first
    kNeededLast,  // what is read last
    kFits,        // of what a link of this pace has stored by now, the smallest that is enough, or else the largest
  };
  struct Rule {
    First first = First::kMade;
    Link pace{};                     // for kFits
    ByValue<std::uint8_t> barred{};  // values that stay; empty: none
  };

  // `base` is a legal plan that copies nothing. Values below `least_bytes` stay where they are. All must outlive it.
  Placing(const Graph& graph, const Costs& costs, const Plan& base, std::int64_t least_bytes);

  // Chooses what is away, and from when on. Returns false if the plan does not fit the budget even so.
  bool let_go(std::int64_t budget_bytes, const Rule& rule);
  // The values that are away, each named once, the largest first.
  [[nodiscard]] std::vector<ValueId> away() const;
  // No plan of plan() is faster than this on the link, because a free waits for all that was stored before its value.
  // REQUIRES: let_go returned true.
  [[nodiscard]] std::int64_t least_time_ns(const Link& link) const;
  // The plan with what was let go, fetched in time for a link of this pace. REQUIRES: let_go returned true.
  [[nodiscard]] Plan plan(const Link& pace) const;

 private:
  // Runs are counted from 1; 0 stands for the start.
  struct Gap {
    ValueId value = kNoValue;
    std::size_t made = 0;      // the run that begins the life
    std::size_t after = 0;     // the last run that uses the value before the gap
    std::size_t before = 0;    // the next that uses it
    std::int64_t copy_ns = 0;  // at the pace of the rule
  };
  struct Away {
    Gap gap;
    std::size_t from;  // it is freed just before this run
    bool stores;       // the first time that this value is away
  };

  void find_gaps();
  // The next of the open gaps, or none; forgets those that have closed.
  [[nodiscard]] std::optional<Gap> next_to_go(std::vector<Gap>& open, std::size_t run, std::int64_t too_many,
                                              First first) const;
  [[nodiscard]] bool is_ready(const Gap& gap, std::size_t run) const;
  using Rank = std::pair<int, std::int64_t>;
  [[nodiscard]] Rank rank(const Gap& gap, std::size_t run, std::int64_t too_many, First first) const;
  [[nodiscard]] bool may_leave(ValueId value) const;
  [[nodiscard]] std::int64_t bytes(ValueId value) const { return costs_.value_bytes[index(value)]; }
  [[nodiscard]] std::int64_t copy_ns(const Link& pace, ValueId value) const;
  [[nodiscard]] std::size_t num_runs() const { return during_.size() - 1; }
  // By Away: the run before which it is fetched.
  [[nodiscard]] std::vector<std::size_t> fetches(const Link& pace) const;
  [[nodiscard]] std::vector<std::int64_t> latest_begins(const Link& pace) const;

  const Graph& graph_;
  const Costs& costs_;
  const Plan& base_;
  std::int64_t least_bytes_;
  std::int64_t budget_bytes_ = 0;
  std::vector<std::int64_t> during_;    // by run: bytes at its highest instant under the base
  std::vector<std::int64_t> begin_ns_;  // by run, if nothing waits
  std::vector<std::int64_t> run_ns_;    // by run
  std::int64_t time_ns_ = 0;            // of the base
  std::vector<Gap> gaps_;               // in the order in which they begin
  std::vector<Away> away_;              // in the order of their ends
  std::int64_t stored_ns_ = 0;          // the copies to the host so far, at the pace of the rule
  std::vector<std::int64_t> room_;      // by run: bytes below the budget
};

}  // namespace reprise::detail
