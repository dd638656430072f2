// Runs a program as planned, below autograd.
//
//   Executor executor(program, plan);
//   StepState state;
//   outputs = executor.forward(inputs, state);     // actions before the caller's op
//   ...                                            // the caller computes the gradients of the outputs
//   gradients = executor.backward(seeds, state);   // the rest
//
// An exception leaves a state that holds nothing; collectives that were on their way keep what they use until they are
// over (communication.h). States are independent of one another: a second forward may run
// before the backward of the first.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reprise/plan.h"
#include "runtime/engine/early_gradients.h"
#include "runtime/engine/host_plan.h"
#include "runtime/engine/step_state.h"
#include "runtime/program/program.h"
#include "runtime/program/tensor_memory.h"

namespace reprise {

// The message, in eager's words, that a tensor which backward reads was changed.
[[nodiscard]] std::string modified_in_place(const std::string& what);

class Executor {
 public:
  // Throws InputError if validate() refuses the plan. The program must not change afterwards. If the plan copies to the
  // host, a step's state must have its copies before forward, with a block of host_bytes(). If the program has state of
  // an optimizer, the step's state must have that too, and `inputs` are those without.
  Executor(std::shared_ptr<const Program> program, const Plan& plan);

  // `interrupted` is called before every op, on the thread the op runs on; it throws to end the step.
  [[nodiscard]] std::vector<std::optional<at::Tensor>> forward(std::span<const at::Tensor> inputs, StepState& state,
                                                               const std::function<void()>& interrupted = {}) const;
  // Undefined seeds among optional_seeds() stand for zeros and take no memory. What `taker` takes is not returned.
  [[nodiscard]] std::vector<std::optional<at::Tensor>> backward(std::span<const at::Tensor> seeds, StepState& state,
                                                                const std::function<void()>& interrupted = {},
                                                                const GradientTaker* taker = nullptr) const;
  // By value: whether the plan has it when the caller's turn comes.
  [[nodiscard]] std::vector<bool> live_between() const;
  // Takes over a step whose forward another executor has run; the programs have the same forward. Returns whether all
  // that this plan keeps for backward is there; if not, the state is as it was.
  [[nodiscard]] bool take_over(const Executor& other, StepState& state) const;
  // Throws what backward would throw before it runs anything.
  void check_backward(std::span<const at::Tensor> seeds, const StepState& state) const;
  [[nodiscard]] const Program& program() const { return *program_; }
  [[nodiscard]] const std::vector<Action>& actions() const { return actions_; }
  // The seeds that may be undefined.
  [[nodiscard]] const std::vector<std::size_t>& seeds_to_leave_out() const { return optional_seeds_; }
  [[nodiscard]] std::int64_t host_bytes() const { return host_ == nullptr ? 0 : host_->block_bytes(); }
  // The caller's tensors that backward reads; they must not change before backward.
  [[nodiscard]] std::span<const ValueId> watched() const { return watched_; }

 private:
  // A tensor argument to put into the prepared arguments of a call.
  struct Patch {
    std::uint32_t argument;
    std::uint32_t element;  // the position, if the argument is a list
    ValueId value;
    const Geometry* geometry;
    bool as_produced;  // the slot's tensor already has this geometry
  };
  struct PreparedCall {
    const Call* call = nullptr;
    std::vector<c10::IValue> arguments;  // constants in place, tensors to be patched
    std::vector<Patch> patches;
  };
  struct PreparedOp {
    const ProgramOp* op;
    std::vector<ValueId> makes;
    PreparedCall call;
    PreparedCall first_call;
    PreparedCall in_place_call;
  };

  void find_produced();
  void check_in_place() const;
  void admit(std::span<const at::Tensor> tensors, const std::vector<std::optional<TensorUse>>& uses,
             const std::vector<std::size_t>& optional, StepState& state) const;
  void retire_overwritten(const ProgramOp& op, StepState& state) const;
  [[nodiscard]] PreparedCall prepare(const std::optional<Call>& call) const;
  void find_boundary(const Plan& plan);
  void find_watched();
  void find_saved();
  void run(std::size_t begin, std::size_t end, StepState& state, const std::function<void()>& interrupted) const;
  void run_here(std::size_t begin, std::size_t end, StepState& state, const std::function<void()>& interrupted) const;
  void take(Action action, StepState& state) const;
  void take_in_arena(std::size_t action, StepState& state) const;
  void compute(const PreparedOp& op, bool in_place, StepState& state) const;
  [[nodiscard]] bool pass_through(const ProgramOp& op, bool in_place, StepState& state) const;
  void compute_mutation(const PreparedOp& op, bool in_place, bool first, StepState& state) const;
  void run_call(const PreparedOp& op, const PreparedCall& prepared, bool first, StepState& state) const;
  void compute_call(const PreparedOp& op, bool in_place, bool first, StepState& state) const;
  [[nodiscard]] std::vector<c10::IValue> arguments_of(const PreparedCall& prepared, const StepState& state) const;
  void call(const PreparedCall& prepared, const StepState& state, std::vector<c10::IValue>& stack) const;
  void start(const PreparedOp& op, StepState& state) const;
  void wait_for(const ProgramOp& op, StepState& state) const;
  void keep_outputs(const PreparedOp& op, std::vector<c10::IValue>& results, StepState& state) const;
  void apply_effect(const ProgramOp& op, StepState& state) const;
  void check_versions(const StepState& state) const;
  [[nodiscard]] std::vector<std::optional<at::Tensor>> collect(const std::vector<std::optional<TensorUse>>& uses,
                                                               const StepState& state, bool keep) const;

  std::shared_ptr<const Program> program_;
  std::vector<std::optional<Geometry>> produced_;  // by value: geometry of what a slot holds
  std::vector<PreparedOp> ops_;
  std::vector<Action> actions_;
  std::unique_ptr<const HostPlan> host_;  // nothing: the plan does not copy
  std::optional<EarlyGradients> early_;
  std::size_t boundary_ = 0;      // the caller's action
  std::vector<ValueId> watched_;  // the caller's tensors that backward reads
  std::vector<std::size_t> optional_seeds_;
  std::vector<std::uint8_t> saved_;     // by op that saves a generator's state: whether it is needed
  std::vector<std::uint8_t> released_;  // by value: nothing after the caller's op reads it, so it is dropped there
};

}  // namespace reprise
