// Makes a Program from the calls that a front end saw: a tracer, or a recorder below autograd.
//
//   ProgramBuilder builder("net", device);
//   const ValueId weight = builder.resident(bytes, device);
//   const ValueId made = builder.made(bytes, device);
//   builder.call({.name = "relu", .call = ..., .results = {TensorUse{made, geometry}}, ...});
//   builder.end_forward({loss});
//   ...
//   Program program = builder.finish({gradient});
//
// A front end knows which tensors share memory. It names memory by the value it was given for it, once and for all; in
// the program a use refers to the version that lies there when the call is added. The builder makes everything that is
// not a call:
// - what a call writes gets a new version. The last versions of memory that the step does not own are its new contents;
// - a batch norm normalises; at its first run it also updates the statistics, and an effect makes the versions;
// - before a random call an op saves the generator's state. The next such op reads a token of the call, so that
//   the generator advances in the order of the calls. Numbers on another device are drawn once;
// - there is the caller's op between forward and backward, with the gradients it gives (seeds) and what it keeps;
// - each gradient is handed over in memory of its own, because autograd would copy it otherwise;
// - an op that reads memory which the step changes later runs once.
// Passes then run over the program: passes/split_collectives.h, passes/split_convolutions.h, passes/in_place.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/program/operator_facts.h"
#include "runtime/program/program.h"

namespace reprise {

using Uses = std::vector<std::optional<TensorUse>>;

class ProgramBuilder {
 public:
  struct SeenCall {
    std::string name;
    std::string scope;
    Call call;
    CallFacts facts;  // of the call
    bool repeats;     // a second run gives the same bits
    Uses results;     // for each tensor it returns; nothing if it is undefined or lies in memory that existed before
    std::optional<bool> expected{};  // for a comparison
    // The first run, if it differs: it also reads memory that the step changes later, for results that only the first
    // run needs.
    std::optional<Call> first_call{};
  };
  struct Gradient {
    TensorUse use;
    std::optional<Geometry> variable{};  // the tensor it belongs to: autograd copies a gradient with another layout
    std::string name{};                  // a copy is called "<name>_copy"
    std::string scope{};
  };

  ProgramBuilder(std::string name, at::Device device);

  // Memory of so many bytes that exists before the step, is made by the next call, or is made by the caller.
  [[nodiscard]] ValueId resident(std::int64_t bytes, at::Device device);
  [[nodiscard]] ValueId made(std::int64_t bytes, at::Device device);
  [[nodiscard]] ValueId seed(std::int64_t bytes, at::Device device);
  // Makes memory that existed before the step larger, when a call sees more of it.
  void grow(ValueId memory, std::int64_t bytes);
  // Gives memory that existed before the step contents that belong to the program.
  void constant(ValueId memory, const at::Tensor& tensor);
  // The next tensor that forward gets.
  void input(std::optional<TensorUse> use);

  // Returns which op the call is.
  OpId call(SeenCall seen);
  // What comes now is backward.
  void end_forward(Uses outputs, Uses seeds = {});
  // Nothing can be added afterwards. The backward pass of large convolutions is split on CUDA only, because elsewhere a
  // call copies the stand-in for the input. Tests split it on the CPU too.
  [[nodiscard]] Program finish(const std::vector<std::optional<Gradient>>& gradients,
                               std::optional<bool> split = std::nullopt);

  // For each op of the finished program, the op as it was added. Several ops may be parts of one.
  [[nodiscard]] const std::vector<OpId>& origins() const { return origins_; }

  [[nodiscard]] const Program& program() const { return program_; }
  [[nodiscard]] bool is_constant(ValueId memory) const;
  // Whether the memory does not belong to the step.
  [[nodiscard]] bool is_resident(ValueId memory) const { return reprise::is_resident(program_, memory); }

 private:
  [[nodiscard]] ValueId add_value(std::int64_t bytes, bool elsewhere = false);
  [[nodiscard]] TensorUse now(TensorUse use) const;
  void use_latest(Call& call) const;
  [[nodiscard]] ValueId new_version(ValueId old);
  [[nodiscard]] bool is_here(const SeenCall& seen) const;
  [[nodiscard]] ValueId save_generator(const ProgramOp& of);
  void note_added_seed(ProgramOp& op) const;
  void add_statistics(const std::vector<std::size_t>& arguments);
  [[nodiscard]] TensorUse copied(const Gradient& gradient, const TensorUse& use);
  void hand_over(const std::vector<std::optional<Gradient>>& gradients);
  void find_single_runs();

  Program program_;
  Phase phase_ = Phase::kForward;
  std::vector<ValueId> memory_;          // by value: the name of the memory it is a version of
  std::vector<ValueId> latest_;          // by name of memory: the version there now
  std::vector<std::uint8_t> elsewhere_;  // by value: not on the budgeted device
  ValueId token_ = kNoValue;             // of the latest random call
  std::vector<OpId> origins_;
};

}  // namespace reprise
