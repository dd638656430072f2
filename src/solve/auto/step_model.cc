#include "solve/auto/step_model.h"

namespace reprise::detail {

StepModel::StepModel(const Graph& step, const Costs& step_costs)
    : graph(step), costs(step_costs), caller(step.caller_op()) {
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
  for (ValueId v{0}; index(v) < graph.num_values(); ++v) {
    const bool planned = graph.residence(v) == Residence::kPlanned;
    const bool pinned = graph.pinned(v) || rides(v);
    weight.push_back(pinned ? 0 : costs.value_bytes[index(v)]);
    if (!planned) start_bytes += costs.value_bytes[index(v)];
    if (!planned && pinned) end_bytes += costs.value_bytes[index(v)];
    if (graph.is_output(v)) end_bytes += weight[v];
    overwrites.push_back(graph.overwrites(v));
    producer.push_back(planned ? graph.producer(v) : kNoOp);
  }
}

void StepModel::describe_ops() {
  ByValue<std::uint8_t> from_caller(graph.num_values(), 0);
  ByValue<std::uint8_t> overwritten(graph.num_values(), 0);
  for (const ValueId old : overwrites) {
    if (old != kNoValue) overwritten[old] = 1;
  }
  for (OpId id{0}; index(id) < graph.num_ops(); ++id) {
    Op op{.time_ns = costs.time_ns[index(id)],
          .transient_bytes = costs.workspace_bytes[index(id)],
          .inputs_begin = static_cast<std::uint32_t>(op_inputs.size()),
          .outputs_begin = static_cast<std::uint32_t>(op_outputs.size())};
    bool seeded = id == caller;
    for (const ValueId v : graph.inputs(id)) {
      seeded = seeded || from_caller[v] != 0;
      const bool always_there = graph.residence(v) != Residence::kPlanned && graph.pinned(v) && overwritten[v] == 0;
      if (!always_there) op_inputs.push_back(v);
    }
    op.repeatable = !seeded && !graph.once(id);
    for (const ValueId v : graph.outputs(id)) {
      const bool rider = rides(v);
      const std::int64_t bytes = costs.value_bytes[index(v)];
      from_caller[v] = seeded ? 1 : 0;
      op.transient_bytes += bytes;
      if (graph.overwrites(v) != kNoValue) {
        op.overwrites = true;
        op.in_place_bytes += bytes;
        op.overwrites_pinned = op.overwrites_pinned || rider || graph.held(v);
      }
      if (rider) op.rider_bytes += bytes;
      if (!rider && graph.held(v)) op.held_bytes += bytes;
      if (op.repeatable && !rider && !graph.pinned(v)) droppable_values.push_back(v);
      op_outputs.push_back(v);
    }
    op.inputs_end = static_cast<std::uint32_t>(op_inputs.size());
    op.outputs_end = static_cast<std::uint32_t>(op_outputs.size());
    end_bytes += op.held_bytes;
    step_time_ns += op.time_ns;
    if (id > caller) captured_order.push_back(id);
    ops.push_back(op);
  }
}

}  // namespace reprise::detail
