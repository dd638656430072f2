// Makes a Program of the calls that a front end saw: a tracer's, or those of a recorder below autograd.
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
// the program a use is of the version that lies there when the call is added. The builder makes all that is no call:
// - what a call writes gets a new version. Of memory the step does not own the last ones are its new contents;
// - a batch norm normalises; at its first run it also updates the statistics, and an effect after it makes the
// versions;
// - before a random call an op saves the generator's state. A token of the call is read by the next such op, so that
// the
//   generator advances in the order of the calls. Numbers of another device are drawn once;
// - the caller's op between forward and backward, the gradients it gives (seeds), and what it keeps;
// - gradients are handed over each in memory of its own, since autograd would copy it otherwise;
// - what reads memory that the step changes later runs once.
// Passes then run over the program: passes/split_convolutions.h, passes/in_place.h.
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
    Uses results;     // per tensor it returns; nothing where it is undefined, or in memory that was there before
    std::optional<bool> expected{};  // of a comparison
  };
  struct Gradient {
    TensorUse use;
    std::optional<Geometry> variable{};  // whose it is: autograd copies a gradient that is laid out otherwise
    std::string name{};                  // a copy is called "<name>_copy"
    std::string scope{};
  };

  ProgramBuilder(std::string name, at::Device device);

  // Memory of so many bytes: there before the step, or made by the next call, or by the caller.
  [[nodiscard]] ValueId resident(std::int64_t bytes, at::Device device);
  [[nodiscard]] ValueId made(std::int64_t bytes, at::Device device);
  [[nodiscard]] ValueId seed(std::int64_t bytes, at::Device device);
  // Of memory that was there before, where more of it is seen.
  void grow(ValueId memory, std::int64_t bytes);
  // Memory that was there before, with contents that belong to the program.
  void constant(ValueId memory, const at::Tensor& tensor);
  // The next tensor that forward gets.
  void input(std::optional<TensorUse> use);

  // Returns which op the call is.
  OpId call(SeenCall seen);
  // What comes now is backward.
  void end_forward(Uses outputs, Uses seeds = {});
  // Nothing can be added afterwards. The backward pass of large convolutions is split on CUDA: elsewhere a call copies
  // the stand-in of the input. Tests split also there.
  [[nodiscard]] Program finish(const std::vector<std::optional<Gradient>>& gradients,
                               std::optional<bool> split = std::nullopt);

  // By op of the finished program: which one it was when it was added. Several may be parts of one.
  [[nodiscard]] const std::vector<OpId>& origins() const { return origins_; }

  [[nodiscard]] const Program& program() const { return program_; }
  [[nodiscard]] bool is_constant(ValueId memory) const;
  // Whether the step does not own it.
  [[nodiscard]] bool is_resident(ValueId memory) const { return reprise::is_resident(program_, memory); }

 private:
  [[nodiscard]] ValueId add_value(std::int64_t bytes, bool elsewhere = false);
  [[nodiscard]] TensorUse now(TensorUse use) const;
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
