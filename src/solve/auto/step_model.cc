#include "solve/auto/step_model.h"

namespace reprise::detail {

StepModel::StepModel(const Graph& step, const Costs& step_costs)
    : graph(step), costs(step_costs), caller(static_cast<std::uint32_t>(index(step.caller_op()))) {
  describe_values();
  describe_ops();
}

// Whether the value may take over memory that no plan can free.
bool StepModel::rides(ValueId v) const {
  for (ValueId old = graph.overwrites(v); old != kNoValue; old = graph.overwrites(old)) {
    if (graph.pinned(old)) return true;
  }
  return false;
}

void StepModel::describe_values() {
  const auto values = static_cast<std::uint32_t>(graph.num_values());
  weight.assign(values, 0);
  overwrites.assign(values, values);
  for (std::uint32_t i = 0; i < values; ++i) {
    const ValueId v = value_id(i);
    const bool planned = graph.residence(v) == Residence::kPlanned;
    const bool pinned = graph.pinned(v) || rides(v);
    if (!pinned) weight[i] = costs.value_bytes[index(v)];
    if (!planned) start_bytes += costs.value_bytes[index(v)];
    if (!planned && pinned) end_bytes += costs.value_bytes[index(v)];
    if (graph.is_output(v)) end_bytes += weight[i];
    if (graph.overwrites(v) != kNoValue) overwrites[i] = static_cast<std::uint32_t>(index(graph.overwrites(v)));
    producer.push_back(static_cast<std::uint32_t>(planned ? index(graph.producer(v)) : graph.num_ops()));
  }
}

void StepModel::describe_ops() {
  std::vector<std::uint8_t> from_caller(graph.num_values(), 0);
  std::vector<std::uint8_t> overwritten(graph.num_values(), 0);
  droppable.assign(graph.num_values(), 0);
  for (const std::uint32_t old : overwrites) {
    if (old < num_values()) overwritten[old] = 1;
  }
  for (std::uint32_t i = 0; i <= graph.num_ops(); ++i) {
    Op op{.inputs_begin = static_cast<std::uint32_t>(op_inputs.size()),
          .outputs_begin = static_cast<std::uint32_t>(op_outputs.size())};
    if (i == graph.num_ops()) {
      ops.push_back(op);
      break;
    }
    op.time_ns = costs.time_ns[i];
    op.transient_bytes = costs.workspace_bytes[i];
    bool seeded = i == caller;
    for (const ValueId v : graph.inputs(op_id(i))) {
      seeded = seeded || from_caller[index(v)] != 0;
      const bool always_there =
          graph.residence(v) != Residence::kPlanned && graph.pinned(v) && overwritten[index(v)] == 0;
      if (!always_there) op_inputs.push_back(static_cast<std::uint32_t>(index(v)));
    }
    op.repeatable = !seeded && !graph.once(op_id(i));
    for (const ValueId v : graph.outputs(op_id(i))) {
      const bool rider = rides(v);
      const std::int64_t bytes = costs.value_bytes[index(v)];
      from_caller[index(v)] = seeded ? 1 : 0;
      op.transient_bytes += bytes;
      if (graph.overwrites(v) != kNoValue) {
        op.overwrites = true;
        op.in_place_bytes += bytes;
        op.overwrites_pinned = op.overwrites_pinned || rider || graph.held(v);
      }
      if (rider) op.rider_bytes += bytes;
      if (!rider && graph.held(v)) op.held_bytes += bytes;
      droppable[index(v)] = op.repeatable && !rider && !graph.pinned(v) ? 1 : 0;
      if (droppable[index(v)] != 0) droppable_values.push_back(static_cast<std::uint32_t>(index(v)));
      op_outputs.push_back(static_cast<std::uint32_t>(index(v)));
    }
    end_bytes += op.held_bytes;
    step_time_ns += op.time_ns;
    if (i > caller) captured_order.push_back(i);
    ops.push_back(op);
  }
}

}  // namespace reprise::detail
