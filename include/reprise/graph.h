// One training step, frozen: its ops in execution order, and the values they read and make. GraphBuilder makes it
// (graph_builder.h). It is structure alone: what ops and values cost is kept beside it (costs.h).
//
// A value is one version of one storage. Views are not values. An output may *overwrite* one input of its op (an
// in-place op). If the op runs in place, the output takes over that input's memory and the input is gone; otherwise the
// output is a fresh copy.
//
// An op on a *communicator* (a collective) runs beside the device. It is two ops: a *start*, whose stream is that of
// the communicator, and its *wait*. What a start makes is *in flight*: the result, and perhaps scratch memory. The wait
// takes no time of its own; it reads all that is in flight and all that the start read, so that both stay live until
// then, and makes the result's next version over it, always in place.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reprise/ids.h"

namespace reprise {

// Forward ops come first, then the one op that stands for what the caller does between forward and backward, then
// backward ops. A forward-only graph (the papers' style) has only forward ops.
enum class Phase : std::uint8_t { kForward, kCaller, kBackward };

enum class Residence : std::uint8_t {
  kPlanned,   // made by an op during the step
  kArriving,  // present at the start, may be freed after its last use
  kResident,  // present before and after the step: counted, never freed
};

// In forward-only graphs, what the gradient of an op reads in addition to the gradient of its output. Other graphs
// ignore it. (It is structure, and is therefore here: docs/decisions/0004-the-papers-backward-pass.md.)
enum class BackwardReads : std::uint8_t { kInputs, kOutputs, kBoth };

class Graph {
 public:
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::size_t num_ops() const { return phase_.size(); }
  [[nodiscard]] std::size_t num_values() const { return residence_.size(); }
  // There is neither a caller's op nor a backward op: the graph has to be completed before it can be planned
  // (papers.h).
  [[nodiscard]] bool forward_only() const { return caller_op_ == kNoOp; }
  [[nodiscard]] OpId caller_op() const { return caller_op_; }

  [[nodiscard]] const std::string& op_name(OpId op) const { return op_name_[index(op)]; }
  [[nodiscard]] ScopeId scope(OpId op) const { return scope_[index(op)]; }
  [[nodiscard]] std::string_view scope_name(OpId op) const {  // "" if the op has none
    return scope(op) == kNoScope ? std::string_view{} : std::string_view{scope_names_[index(scope(op))]};
  }
  [[nodiscard]] const std::vector<std::string>& scopes() const { return scope_names_; }
  [[nodiscard]] Phase phase(OpId op) const { return phase_[index(op)]; }
  [[nodiscard]] bool once(OpId op) const { return once_[index(op)] != 0; }
  // 0: the device's own; from 1 on: a communicator's, numbered in the order of their first starts.
  [[nodiscard]] std::uint32_t stream(OpId op) const { return stream_[index(op)]; }
  [[nodiscard]] std::uint32_t num_communicators() const { return num_communicators_; }
  [[nodiscard]] bool is_start(OpId op) const { return stream(op) != 0; }
  [[nodiscard]] bool is_wait(OpId op) const { return stream(op) == 0 && partner_[index(op)] != kNoOp; }
  // The wait of a start, the start of a wait, and kNoOp for all other ops.
  [[nodiscard]] OpId partner(OpId op) const { return partner_[index(op)]; }
  [[nodiscard]] BackwardReads backward_reads(OpId op) const { return backward_reads_[index(op)]; }
  [[nodiscard]] std::span<const ValueId> inputs(OpId op) const { return row(inputs_, index(op)); }
  [[nodiscard]] std::span<const ValueId> outputs(OpId op) const { return row(outputs_, index(op)); }

  [[nodiscard]] Residence residence(ValueId value) const { return residence_[index(value)]; }
  [[nodiscard]] bool held(ValueId value) const { return held_[index(value)] != 0; }
  [[nodiscard]] bool is_output(ValueId value) const { return is_output_[index(value)] != 0; }
  [[nodiscard]] OpId producer(ValueId value) const { return producer_[index(value)]; }  // kNoOp: there from the start
  [[nodiscard]] std::span<const OpId> readers(ValueId value) const { return row(readers_, index(value)); }
  // The input that the value may overwrite, or kNoValue.
  [[nodiscard]] ValueId overwrites(ValueId value) const { return overwrites_[index(value)]; }
  // Made by a start: only its wait reads it.
  [[nodiscard]] bool in_flight(ValueId value) const { return producer(value) != kNoOp && is_start(producer(value)); }
  // Never freed by a plan: resident, or owned by the caller too.
  [[nodiscard]] bool pinned(ValueId value) const { return residence(value) == Residence::kResident || held(value); }
  [[nodiscard]] std::span<const ValueId> step_outputs() const { return step_outputs_; }

  // Whether the other has the same ops, values and order, so that a plan of one is a plan of the other. Names and
  // scopes may differ.
  [[nodiscard]] bool same_structure(const Graph& other) const {
    return phase_ == other.phase_ && once_ == other.once_ && inputs_ == other.inputs_ && outputs_ == other.outputs_ &&
           stream_ == other.stream_ && residence_ == other.residence_ && held_ == other.held_ &&
           overwrites_ == other.overwrites_ && step_outputs_ == other.step_outputs_;
  }

  friend bool operator==(const Graph&, const Graph&) = default;

 private:
  friend class GraphBuilder;

  template <typename Id>
  struct Rows {  // compressed sparse rows
    std::vector<std::uint32_t> begin{0};
    std::vector<Id> items;
    friend bool operator==(const Rows&, const Rows&) = default;
  };
  template <typename Id>
  static std::span<const Id> row(const Rows<Id>& rows, std::size_t i) {
    return {rows.items.data() + rows.begin[i], rows.begin[i + 1] - rows.begin[i]};
  }

  std::string name_;
  OpId caller_op_ = kNoOp;
  std::uint32_t num_communicators_ = 0;
  std::vector<std::string> scope_names_;
  // Indexed by op.
  std::vector<std::string> op_name_;
  std::vector<ScopeId> scope_;
  std::vector<Phase> phase_;
  std::vector<std::uint8_t> once_;
  std::vector<std::uint32_t> stream_;
  std::vector<OpId> partner_;
  std::vector<BackwardReads> backward_reads_;
  Rows<ValueId> inputs_;
  Rows<ValueId> outputs_;
  // Indexed by value.
  std::vector<Residence> residence_;
  std::vector<std::uint8_t> held_;
  std::vector<std::uint8_t> is_output_;
  std::vector<OpId> producer_;
  Rows<OpId> readers_;
  std::vector<ValueId> overwrites_;

  std::vector<ValueId> step_outputs_;
};

}  // namespace reprise
