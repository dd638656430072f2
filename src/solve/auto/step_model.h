// A step as `auto` works on it: flat arrays, with what no plan can change left out.
//
// An op *may be repeated* when it is not `once` and nothing of it depends on what the caller's op makes. A value is
// *droppable* when its producer may be repeated and its memory is the step's own: only these get labels.
//
// Bytes of a value count as its weight while it is live, with two exceptions. Held values weigh nothing and their bytes
// are charged from the first run of their producer to the end. A value that overwrites pinned memory (a *rider*) weighs
// nothing as long as its op runs in place.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reprise/costs.h"
#include "reprise/graph.h"

namespace reprise::detail {

struct StepModel {
  // `graph` has a caller's op; both must outlive the model.
  StepModel(const Graph& graph, const Costs& costs);

  struct Op {
    std::int64_t time_ns = 0;
    std::int64_t transient_bytes = 0;  // outputs and workspace, run into fresh memory
    std::int64_t in_place_bytes = 0;   // of these, what a run in place does not need
    std::int64_t held_bytes = 0;       // of its outputs that stay to the end whatever the plan says
    std::int64_t rider_bytes = 0;      // of its outputs that live in pinned memory when run in place
    std::uint32_t inputs_begin = 0;
    std::uint32_t outputs_begin = 0;
    bool repeatable = false;
    bool overwrites = false;
    bool overwrites_pinned = false;  // a rerun finds its output live, so it makes a copy
  };

  [[nodiscard]] std::uint32_t num_ops() const { return static_cast<std::uint32_t>(ops.size() - 1); }
  [[nodiscard]] std::uint32_t num_values() const { return static_cast<std::uint32_t>(weight.size()); }
  // Inputs without those that are always there.
  [[nodiscard]] std::span<const std::uint32_t> inputs(std::uint32_t op) const {
    return {op_inputs.data() + ops[op].inputs_begin, op_inputs.data() + ops[op + 1].inputs_begin};
  }
  [[nodiscard]] std::span<const std::uint32_t> outputs(std::uint32_t op) const {
    return {op_outputs.data() + ops[op].outputs_begin, op_outputs.data() + ops[op + 1].outputs_begin};
  }

  const Graph& graph;
  const Costs& costs;
  std::uint32_t caller = 0;  // index of the caller's op; forward ops lie before it, backward ops after
  std::vector<Op> ops;       // one more than there are ops
  std::vector<std::uint32_t> op_inputs;
  std::vector<std::uint32_t> op_outputs;
  // By value.
  std::vector<std::int64_t> weight;
  std::vector<std::uint32_t> producer;    // num_ops(): the start
  std::vector<std::uint32_t> overwrites;  // num_values(): none
  std::vector<std::uint8_t> droppable;
  std::vector<std::uint32_t> droppable_values;

  std::int64_t start_bytes = 0;  // live before the first run
  std::int64_t end_bytes = 0;    // live after the last run of any plan
  std::int64_t step_time_ns = 0;
  std::vector<std::uint32_t> captured_order;  // backward ops as they are

 private:
  void describe_values();
  void describe_ops();
  [[nodiscard]] bool rides(ValueId v) const;
};

}  // namespace reprise::detail
