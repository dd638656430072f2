// A graph made ready for planning, and the way from a planner's blocks to a plan.
#pragma once

#include <optional>
#include <span>

#include "papers/cut_chain.h"
#include "papers/forward_view.h"
#include "papers/papers_backward.h"
#include "reprise/costs.h"
#include "reprise/graph.h"
#include "reprise/plan.h"
#include "reprise/simulate.h"

namespace reprise::detail {

// As the papers have it, including reruns that nothing reads, or without them.
enum class Expansion : std::uint8_t { kAsPrinted, kLean };

class Problem {
 public:
  // `graph` and `costs` must outlive the problem. A forward-only graph is completed.
  Problem(const Graph& graph, const Costs& costs);

  [[nodiscard]] const Graph& step() const { return papers_ ? papers_->graph : graph_; }
  [[nodiscard]] const Costs& costs() const { return papers_ ? papers_->costs : costs_; }  // costs of the step
  [[nodiscard]] const ForwardView& view() const { return papers_ ? papers_->view : view_; }

  [[nodiscard]] Plan plan(const Blocks& blocks, bool keep_last, Expansion expansion) const;
  [[nodiscard]] Plan plan(std::span<const OpId> runs) const;
  // Backward ops of each stage of a chain.
  [[nodiscard]] std::vector<std::vector<OpId>> backward_by_stage(const CutChain& chain) const;
  // The whole of forward in one block: with keep_last, a step without recomputation.
  [[nodiscard]] Blocks one_block() const;

 private:
  const Graph& graph_;
  const Costs& costs_;
  std::optional<PapersStep> papers_;
  ForwardView view_;
};

}  // namespace reprise::detail
