// The step as planners see it: each collective is one op, made where its wait stands.
//
//   shard -> gather (start) -> in flight -> wait -> w        becomes        shard -> gather -> w
//
// The one op takes a share of the collective's time and needs its scratch memory as workspace, so a plan of the joined
// step has the peak of the plan in which every start stands just before its wait. A hidden collective costs the device
// nothing and an exposed one all of its time; planners get something between (`price`), and `hoist` then finds out.
// Where a start may stand anywhere above its wait, as for bounds, its own workspace says nothing about the place of the
// wait (`at_wait` false); its scratch is there until then.
#pragma once

#include <span>
#include <vector>

#include "graph/by_id.h"
#include "reprise/costs.h"
#include "reprise/graph.h"

namespace reprise::detail {

class JoinedStep {
 public:
  // `price`: the share of a collective's time that its op takes. `at_wait`: whether starts stand just before their
  // waits.
  JoinedStep(const Graph& graph, const Costs& costs, double price, bool at_wait = true);

  [[nodiscard]] const Graph& graph() const { return joined_.graph; }
  [[nodiscard]] const Costs& costs() const { return joined_.costs; }
  // The op of the joined graph for an op of the whole one. REQUIRES: that is not a start.
  [[nodiscard]] OpId joined(OpId whole) const { return joined_of_[whole]; }
  // Runs of the joined step as runs of the whole: each start just before its wait.
  [[nodiscard]] std::vector<OpId> whole(std::span<const OpId> runs) const;

 private:
  const Graph& whole_;
  ByOp<OpId> joined_of_;  // kNoOp for starts
  ByOp<OpId> whole_of_;   // for a collective, its wait
  CostedGraph joined_;
};

}  // namespace reprise::detail
