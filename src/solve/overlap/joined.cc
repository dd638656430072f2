#include "solve/overlap/joined.h"

#include <cmath>
#include <string>
#include <utility>

#include "reprise/graph_builder.h"

namespace reprise::detail {
namespace {

ByValue<ValueId> add_values(const Graph& graph, const Costs& costs, GraphBuilder& builder) {
  ByValue<ValueId> joined(graph.num_values(), kNoValue);
  for (ValueId v{0}; index(v) < graph.num_values(); ++v) {
    if (graph.in_flight(v)) continue;
    const std::int64_t bytes = costs.value_bytes[index(v)];
    switch (graph.residence(v)) {
      case Residence::kPlanned:
        joined[v] = builder.value(bytes);
        break;
      case Residence::kArriving:
        joined[v] = builder.arriving(bytes);
        break;
      case Residence::kResident:
        joined[v] = builder.resident(bytes);
        break;
    }
    if (graph.held(v)) builder.hold(joined[v]);
  }
  return joined;
}

std::vector<ValueId> renumbered(std::span<const ValueId> values, const ByValue<ValueId>& joined) {
  std::vector<ValueId> found;
  for (const ValueId v : values) found.push_back(joined[v]);
  return found;
}

// What a start makes beside the result.
std::int64_t scratch_bytes(const Graph& graph, const Costs& costs, OpId start) {
  const ValueId result = graph.overwrites(graph.outputs(graph.partner(start))[0]);
  std::int64_t bytes = 0;
  for (const ValueId v : graph.outputs(start)) bytes += v == result ? 0 : costs.value_bytes[index(v)];
  return bytes;
}

OpSpec joined_op(const Graph& graph, const Costs& costs, OpId op, double price, bool at_wait) {
  const OpId start = graph.is_wait(op) ? graph.partner(op) : op;
  OpSpec spec{.name = graph.op_name(start),
              .scope = graph.scope(start),
              .phase = graph.phase(op),
              .time_ns = costs.time_ns[index(start)],
              .workspace_bytes = costs.workspace_bytes[index(start)],
              .once = graph.once(op)};
  if (start == op) return spec;
  spec.time_ns = std::llround(static_cast<double>(spec.time_ns) * price);
  spec.workspace_bytes = scratch_bytes(graph, costs, start) + (at_wait ? spec.workspace_bytes : 0);
  return spec;
}

}  // namespace

JoinedStep::JoinedStep(const Graph& graph, const Costs& costs, double price, bool at_wait)
    : whole_(graph), joined_of_(graph.num_ops(), kNoOp) {
  GraphBuilder builder(graph.name());
  for (const std::string& scope : graph.scopes()) builder.scope(scope);
  const ByValue<ValueId> joined = add_values(graph, costs, builder);
  for (OpId op{0}; index(op) < graph.num_ops(); ++op) {
    if (graph.is_start(op)) continue;
    OpSpec spec = joined_op(graph, costs, op, price, at_wait);
    const OpId reads = graph.is_wait(op) ? graph.partner(op) : op;
    spec.inputs = renumbered(graph.inputs(reads), joined);
    spec.outputs = renumbered(graph.outputs(op), joined);
    for (const ValueId v : graph.outputs(op)) {
      const ValueId old = graph.overwrites(v);
      if (old != kNoValue && !graph.in_flight(old)) builder.overwrite(joined[v], joined[old]);
    }
    joined_of_[op] = builder.op(std::move(spec));
    whole_of_.push_back(op);
  }
  for (const ValueId v : graph.step_outputs()) builder.output(joined[v]);
  joined_ = builder.build();
  joined_.costs.link = costs.link;
}

std::vector<OpId> JoinedStep::whole(std::span<const OpId> runs) const {
  std::vector<OpId> found;
  for (const OpId run : runs) {
    const OpId op = whole_of_[run];
    if (whole_.is_wait(op)) found.push_back(whole_.partner(op));
    found.push_back(op);
  }
  return found;
}

}  // namespace reprise::detail
