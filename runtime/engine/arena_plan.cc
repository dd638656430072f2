#include "runtime/engine/arena_plan.h"

#include <algorithm>
#include <utility>

#include "reprise/lives.h"
#include "reprise/place.h"
#include "reprise/simulate.h"

namespace reprise {

ArenaPlan::ArenaPlan(const Program& program, const Graph& graph, Costs costs, const Plan& plan,
                     const CallScripts& scripts, std::int64_t alignment_bytes)
    : scripts_version_(scripts.version()) {
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    // What autograd takes when it gets the gradients is not asked for by a call of the step.
    if (program.ops[i].kind == ProgramOp::Kind::kHandOver) costs.workspace_bytes[i] = 0;
    if (const auto known = scripts.workspace_bytes(op_id(i))) costs.workspace_bytes[i] = *known;
  }
  const Placement placement = place(graph, costs, plan, {.alignment_bytes = alignment_bytes});
  arena_bytes_ = placement.arena_bytes;
  load_bytes_ = placement.load_bytes;
  first_.assign(plan.actions.size() + 1, 0);
  for (const Address& address : placement.addresses) {
    const std::int64_t bytes = address.value == kNoValue
                                   ? costs.workspace_bytes[index(plan.actions[address.action].op())]
                                   : costs.value_bytes[index(address.value)];
    pieces_.push_back({address.value, address.offset, bytes});
    ++first_[address.action + 1];
  }
  for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
}

std::span<const ArenaPlan::Piece> ArenaPlan::pieces(std::size_t action) const {
  return std::span(pieces_).subspan(first_[action], first_[action + 1] - first_[action]);
}

ArenaPlan::Beside ArenaPlan::beside(const Graph& graph, const Costs& costs, const Plan& plan) const {
  const Timeline times = timeline(graph, costs, plan);
  // How much more of what is counted lies in the arena from an action on; what lives for one action is kept apart.
  std::vector<std::int64_t> change(plan.actions.size() + 1, 0);
  std::vector<std::int64_t> during(plan.actions.size(), 0);
  std::vector<std::uint8_t> inside(graph.num_values(), 0);  // by value: whether its latest life lies in the arena
  const auto has_piece = [&](std::size_t action, ValueId value) {
    return std::ranges::any_of(pieces(action), [&](const Piece& piece) { return piece.value == value; });
  };
  for (const Life& life : lives(graph, plan)) {
    if (!life.first) continue;
    const bool is_inside =
        life.took_over != kNoValue ? inside[index(life.took_over)] != 0 : has_piece(*life.first, life.value);
    const std::int64_t bytes = is_inside ? costs.value_bytes[index(life.value)] : 0;
    if (life.second_copy) {
      during[*life.first] += bytes;
      continue;
    }
    inside[index(life.value)] = is_inside ? 1 : 0;
    // A value that is written over lies there until its successor does.
    change[*life.first] += bytes;
    change[life.last.value_or(plan.actions.size())] -= bytes;
  }
  // Only computes reach a new height.
  Beside result{.peak_bytes = times.start_bytes};
  std::int64_t inside_bytes = 0;
  bool is_backward = false;
  for (std::size_t i = 0; i < plan.actions.size(); ++i) {
    inside_bytes += change[i];
    const Action action = plan.actions[i];
    if (!action.computes()) continue;
    const std::int64_t workspace = has_piece(i, kNoValue) ? costs.workspace_bytes[index(action.op())] : 0;
    const std::int64_t here = times.during_bytes[i] - inside_bytes - during[i] - workspace;
    is_backward = is_backward || action.op() == graph.caller_op();
    result.peak_bytes = std::max(result.peak_bytes, here);
    if (is_backward) result.backward_peak_bytes = std::max(result.backward_peak_bytes, here);
  }
  return result;
}

}  // namespace reprise
