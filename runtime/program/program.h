// A captured training step: flat calls of ATen operators over numbered values.
//
// A value is one version of one storage; how a call sees it (dtype, sizes, strides, offset) is geometry in the call's
// argument, so views are neither calls nor values. Ops and values have the ids they have in the graph. Besides calls
// there are ops that stand for something the graph has to know:
//   kGeneratorState  saves the state of the random generator for the random call that follows
//   kEffect          what the first run of the call before it changed in memory the step does not own
//   kCaller          what the caller does between forward and backward
//   kHandOver        what autograd takes when it receives the gradients
//   kWait            the wait for a collective that a call has started (passes/split_collectives.h)
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "reprise/graph.h"

namespace reprise {

struct Geometry {
  at::ScalarType dtype = at::ScalarType::Float;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;
  bool conj = false;
  bool neg = false;

  friend bool operator==(const Geometry&, const Geometry&) = default;
};

[[nodiscard]] Geometry geometry_of(const at::Tensor& tensor);
// Bytes from the beginning of the storage to the end of the last element.
[[nodiscard]] std::int64_t extent_bytes(const Geometry& geometry);
// Whether no number is negative, and the tensor reaches over less than 2^54 elements, so that nothing computed from
// them is too large for 64 bits. REQUIRES: there are as many strides as sizes.
[[nodiscard]] bool is_possible(const Geometry& geometry);
[[nodiscard]] std::string to_string(const Geometry& geometry);  // "Float[2, 3] strides [3, 1]"

struct TensorUse {
  ValueId value = kNoValue;
  Geometry geometry;
};

// A constant, or tensors: one, or a list. A missing tensor of an optional is nullopt.
struct Argument {
  enum class Kind : std::uint8_t { kConstant, kTensor, kTensorList, kOptionalTensorList };
  Kind kind = Kind::kConstant;
  c10::IValue constant;
  std::vector<std::optional<TensorUse>> tensors;
};

struct Call {
  c10::OperatorHandle op;
  std::vector<Argument> arguments;
  bool grad_mode = false;  // some kernels keep less if no gradients are wanted

  // The tensor that is the argument at this position, or nullptr if it is another thing or missing.
  [[nodiscard]] const TensorUse* tensor(std::size_t position) const {
    const Argument& argument = arguments[position];
    const bool is_there = argument.kind == Argument::Kind::kTensor && argument.tensors.front();
    return is_there ? &*argument.tensors.front() : nullptr;
  }
  // The argument with this name in the schema, or nullptr if there is none.
  [[nodiscard]] const Argument* argument(std::string_view name) const;
};

// The operator with a name such as "aten::add.Tensor", if this libtorch has it.
[[nodiscard]] std::optional<c10::OperatorHandle> find_operator(const std::string& name);

// All tensors that a call reads.
template <typename Visit>
void for_each_use(const Call& call, Visit visit) {
  for (const Argument& argument : call.arguments) {
    for (const auto& use : argument.tensors) {
      if (use) visit(*use);
    }
  }
}

struct ProgramOp {
  enum class Kind : std::uint8_t { kCall, kGeneratorState, kEffect, kCaller, kHandOver, kWait };
  Kind kind = Kind::kCall;
  std::string name;
  std::string scope;  // the user's module path
  Phase phase = Phase::kForward;
  bool once = false;
  std::uint32_t stream = 0;          // above 0: a call that starts a collective, on this communicator (graph.h)
  std::int64_t workspace_bytes = 0;  // for ops that are not calls
  std::optional<Call> call;
  std::optional<Call> first_call;                 // the first run, if it differs: it also has the effect
  std::optional<Call> in_place_call;              // writes its result over what the output overwrites
  std::vector<std::optional<TensorUse>> outputs;  // for each tensor that the operator returns; nullopt: undefined
  // The call writes over memory that it reads: new versions are in also_makes. A run that is not in place runs it on
  // copies of what it would write over.
  bool mutates = false;
  std::optional<bool> expected{};      // for a comparison that decided what was captured: the result it must give
  ValueId generator_state = kNoValue;  // for a random call: read at every run but the first
  // For a sum of a seed and another value. If the caller does not have that gradient, the sum is the other value.
  ValueId added_seed = kNoValue;
  ValueId added_to = kNoValue;
  // Reads and writes that are neither arguments nor results: tokens that order ops, and versions that an effect makes.
  std::vector<ValueId> also_reads;
  std::vector<ValueId> also_makes;
};

// All calls that an op may run as.
template <typename Visit>
void for_each_call(const ProgramOp& op, Visit visit) {
  for (const auto* call : {&op.call, &op.first_call, &op.in_place_call}) {
    if (*call) visit(**call);
  }
}

struct ProgramValue {
  std::int64_t bytes = 0;  // as counted: 0 if it is not on the budgeted device
  Residence residence = Residence::kPlanned;
  bool held = false;
  ValueId overwrites = kNoValue;
};

struct Program {
  std::string name;
  std::vector<ProgramOp> ops;
  std::vector<ProgramValue> values;
  std::vector<std::optional<TensorUse>> inputs;           // per tensor the forward call gets; nullopt: not read
  std::vector<std::optional<TensorUse>> forward_outputs;  // per tensor it returns
  std::vector<std::optional<TensorUse>> seeds;            // per tensor the backward call gets
  std::vector<std::optional<TensorUse>> gradients;        // per tensor it returns
  std::vector<std::pair<ValueId, at::Tensor>> constants;  // tensors that belong to the program
  std::vector<ValueId> new_contents;                      // last versions of memory the step does not own
  at::Device device = at::kCPU;                           // whose memory is budgeted
  std::size_t num_state = 0;                              // the last inputs: the optimizer's state (passes/park.h)

  [[nodiscard]] OpId caller_op() const;
};

// The values an op reads and makes, without repetition, in order.
[[nodiscard]] std::vector<ValueId> reads(const ProgramOp& op);
[[nodiscard]] std::vector<ValueId> makes(const ProgramOp& op);

// The values of these uses, likewise.
[[nodiscard]] std::vector<ValueId> values_of(const std::vector<std::optional<TensorUse>>& uses);

// All that ops of the program read.
[[nodiscard]] std::set<ValueId> read_values(const Program& program);
// All that later versions are written over.
[[nodiscard]] std::set<ValueId> overwritten_values(const Program& program);

// Whether a value lies in memory that the step does not own: it is resident, or a later version of a resident value.
[[nodiscard]] bool is_resident(const Program& program, ValueId value);

// Positions of the seeds that the caller may leave out, because only such sums read them.
[[nodiscard]] std::vector<std::size_t> optional_seeds(const Program& program);

// The step as planners see it, with the same ids. Random calls may be repeated, or must run `once` (a CUDA graph cannot
// go back to an earlier state of the generator). Throws InputError if the program breaks a rule of graphs.
enum class RandomCalls : std::uint8_t { kRepeat, kOnce };
[[nodiscard]] Graph make_graph(const Program& program, RandomCalls random = RandomCalls::kRepeat);

}  // namespace reprise
