// A step as `auto` works on it: flat arrays, with what no plan can change left out.
//
// An op *may be repeated* if it is not `once` and does not depend on what the caller's op makes. A value is *droppable*
// when its producer may be repeated and its memory is the step's own: only these get labels.
//
// Bytes of a value count as its weight while it is live, with two exceptions. Held values weigh nothing and their bytes
// are charged from the first run of their producer to the end. A value that overwrites pinned memory (a *rider*) weighs
// nothing as long as its op runs in place.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/by_id.h"
#include "reprise/costs.h"
#include "reprise/graph.h"

namespace reprise::detail {

struct StepModel {
  // `graph` has a caller's op; both must outlive the model.
  StepModel(const Graph& graph, const Costs& costs);

  struct Op {
    std::int64_t time_ns = 0;
    std::int64_t transient_bytes = 0;  // outputs and workspace, run into fresh memory
    std::int64_t in_place_bytes = 0;   // the part of these that a run in place does not need
    std::int64_t held_bytes = 0;       // bytes of its outputs that stay to the end whatever the plan says
    std::int64_t rider_bytes = 0;      // bytes of its outputs that live in pinned memory when it runs in place
    std::uint32_t inputs_begin = 0;
    std::uint32_t inputs_end = 0;
    std::uint32_t outputs_begin = 0;
    std::uint32_t outputs_end = 0;
    bool repeatable = false;
    bool overwrites = false;
    bool overwrites_pinned = false;  // a rerun finds its output live, so it makes a copy
  };

  [[nodiscard]] std::size_t num_ops() const { return ops.size(); }
  [[nodiscard]] std::size_t num_values() const { return weight.size(); }
  // The inputs without those that are always present.
  [[nodiscard]] std::span<const ValueId> inputs(OpId op) const {
    return {op_inputs.data() + ops[op].inputs_begin, op_inputs.data() + ops[op].inputs_end};
  }
  [[nodiscard]] std::span<const ValueId> outputs(OpId op) const {
    return {op_outputs.data() + ops[op].outputs_begin, op_outputs.data() + ops[op].outputs_end};
  }

  const Graph& graph;
  const Costs& costs;
  OpId caller;  // forward ops lie before it, backward ops after
  ByOp<Op> ops;
  std::vector<ValueId> op_inputs;
  std::vector<ValueId> op_outputs;
  ByValue<std::int64_t> weight;
  ByValue<OpId> producer;       // kNoOp: the start
  ByValue<ValueId> overwrites;  // kNoValue: none
  std::vector<ValueId> droppable_values;

  std::int64_t start_bytes = 0;  // live before the first run
  std::int64_t end_bytes = 0;    // live after the last run of any plan
  std::int64_t step_time_ns = 0;
  std::vector<OpId> captured_order;  // backward ops as they are

 private:
  void describe_values();
  void describe_ops();
  [[nodiscard]] bool rides(ValueId v) const;
};

}  // namespace reprise::detail
