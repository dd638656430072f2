#include "solve/chain/chain_problem.h"

#include <algorithm>

#include "plan/expand_chain.h"
#include "solve/planner.h"

namespace reprise::detail {
namespace {

bool read_backward(const Graph& step, ValueId v) {
  return std::ranges::any_of(step.readers(v), [&](OpId op) { return step.phase(op) == Phase::kBackward; });
}

}  // namespace

ChainProblem::ChainProblem(const Problem& problem)
    : problem_(problem), chain_(cut_chain(problem.view())), backward_(problem.backward_by_stage(chain_)) {
  sizes_.push_back(0);
  sizes_.insert(sizes_.end(), chain_.cut_bytes.begin(), chain_.cut_bytes.end());
  measure_stages();
}

void ChainProblem::measure_stages() {
  const Graph& step = problem_.step();
  const Costs& costs = problem_.costs();
  const ForwardView& view = problem_.view();
  layers_.resize(stages());
  rotor_stages_.resize(stages());
  for (std::uint32_t s = 0; s < stages(); ++s) {
    const std::int64_t size = chain_.cut_bytes[s];
    layers_[s].bytes = layers_[s].gradient_bytes = size;
    rotor_stages_[s].output_bytes = rotor_stages_[s].gradient_bytes = size;
    rotor_stages_[s].forward_ns = chain_.time[s];
    rotor_stages_[s].saved_bytes = size;
    for (const OpId op : backward_[s]) {
      rotor_stages_[s].backward_ns += costs.time_ns[index(op)];
      std::int64_t& workspace = layers_[s].backward_workspace_bytes;
      workspace = std::max(workspace, costs.workspace_bytes[index(op)]);
    }
  }
  for (std::size_t i = 0; i < view.node_of_op.size(); ++i) {
    const NodeId node = view.node_of_op[i];
    if (node == kNoNode) continue;
    const std::uint32_t s = chain_.stage[node];
    const bool ends_stage = s < chain_.cuts.size() ? chain_.cuts[s] == node : view.succs[node].empty();
    std::int64_t& workspace = layers_[s].forward_workspace_bytes;
    workspace = std::max(workspace, costs.workspace_bytes[i]);
    for (const ValueId v : step.outputs(op_id(i))) {
      if (!ends_stage && read_backward(step, v)) layers_[s].saved_bytes += costs.value_bytes[index(v)];
    }
  }
  for (std::uint32_t s = 0; s < stages(); ++s) {
    rotor_stages_[s].saved_bytes += layers_[s].saved_bytes;
    rotor_stages_[s].forward_overhead_bytes = layers_[s].forward_workspace_bytes;
    rotor_stages_[s].backward_overhead_bytes = layers_[s].backward_workspace_bytes + sizes_[s];
  }
}

LowerSetFamily ChainProblem::cut_sets() const {
  const ForwardView& view = problem_.view();
  const std::size_t words = LowerSetFamily::words_for(view.num_nodes());
  std::vector<std::uint64_t> sets((stages() + 1) * words, 0);
  for (NodeId v = 0; v < view.num_nodes(); ++v) {
    for (std::size_t s = chain_.stage[v] + 1; s <= stages(); ++s) {
      sets[s * words + v / 64] |= std::uint64_t{1} << (v % 64);
    }
  }
  return {view, std::move(sets)};
}

Blocks ChainProblem::blocks(const Checkpoints& checkpoints) const {
  std::vector<std::uint32_t> ends;
  for (const std::uint32_t c : checkpoints) {
    if (c < stages()) ends.push_back(c - 1);
  }
  return chain_.blocks(ends);
}

std::vector<OpId> ChainProblem::runs(std::span<const ChainAction> actions) const {
  std::vector<StageRun> schedule;
  for (const ChainAction& action : actions) {
    schedule.push_back({action.stage - 1, action.kind == ChainAction::Kind::kBackward});
  }
  return expand(problem_.step(), problem_.view(), chain_, backward_, schedule);
}

Formula ChainProblem::formula(const Checkpoints& checkpoints, std::int64_t peak_bytes) const {
  Formula result{.peak_bytes = peak_bytes, .blocks = 1};
  std::vector<std::uint8_t> kept(stages() + 1, 0);
  for (const std::uint32_t c : checkpoints) {
    kept[c] = 1;
    result.cached_bytes += sizes_[c];
    if (c < stages()) ++result.blocks;
  }
  for (std::uint32_t k = 1; k < stages(); ++k) result.overhead += kept[k] != 0 ? 0 : chain_.time[k - 1];
  return result;
}

std::int64_t ChainProblem::rerun_time(std::span<const ChainAction> actions) const {
  std::int64_t time = 0;
  for (const ChainAction& action : actions) {
    if (action.kind != ChainAction::Kind::kBackward) time += chain_.time[action.stage - 1];
  }
  return time - problem_.view().total_time();
}

bool ChainProblem::describe(Solution& solution, std::uint32_t most_stages) const {
  constexpr double kPoor = 0.25;
  solution.stats.lower_sets = stages() + 1;
  const auto total = static_cast<double>(problem_.view().total_bytes());
  const double largest = stages() == 0 ? 0 : static_cast<double>(std::ranges::max(chain_.bytes));
  if (total > 0 && largest >= kPoor * total) {
    solution.message = "few cuts: a chain of " + std::to_string(stages()) + " stages, the largest with " +
                       std::to_string(static_cast<int>(100 * largest / total)) + " % of the bytes";
  }
  if (stages() <= most_stages) return true;
  stop(solution,
       std::to_string(stages()) + " stages; " + solution.planner + " takes at most " + std::to_string(most_stages));
  return false;
}

}  // namespace reprise::detail
