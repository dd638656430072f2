// A planned step that runs as one CUDA graph.
//
// A graph reads and writes the same memory at every replay, so nothing of it is handed out: the batch is copied in, the
// loss and new gradients are copied out, gradients that are there are added to. Parameters and buffers are read and
// changed where they lie; when one has moved, the step is recorded again. Random calls run once in a step.
//
// The graph's memory lies in a pool of its own, reserved between steps. What is compared with the budget is all of that
// pool and everything that is allocated beside it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reprise/solve.h"
#include "reprise/torch/training_step.h"
#include "runtime/program/step_program.h"
#include "runtime/session/step_plan.h"

namespace reprise {

class GraphedStep {
 public:
  // With what the step's own tensors take. Its calls are measured. Throws InputError where there are no CUDA graphs.
  GraphedStep(StepProgram step, std::int64_t resident_bytes);
  ~GraphedStep();
  GraphedStep(const GraphedStep&) = delete;
  GraphedStep& operator=(const GraphedStep&) = delete;

  // Whether the step runs as a graph now: the first ones do not, then one is recorded. `outside_bytes` lie on the
  // device beside the step. Throws InputError, and has changed nothing, where it cannot be recorded or the budget not
  // be kept.
  [[nodiscard]] bool ready(const std::vector<at::Tensor>& state, const std::vector<at::Tensor>& batch,
                           const StepOptions& options, std::int64_t outside_bytes);

  // Where it is ready: forward and backward, as PlannedStep::run().
  at::Tensor run(const std::vector<at::Tensor>& state, const std::vector<at::Tensor>& batch);
  // Of the recorded plan, and the highest that a step comes to.
  [[nodiscard]] const Solution& solution() const;
  [[nodiscard]] std::int64_t peak_bytes(const std::vector<at::Tensor>& state) const;

  // Gives graph and pool back; the next steps run without.
  void release();

 private:
  struct Recorded;
  [[nodiscard]] bool takes(const std::vector<at::Tensor>& batch) const;
  [[nodiscard]] bool is_current(const std::vector<at::Tensor>& state, const StepOptions& options) const;
  [[nodiscard]] std::vector<const void*> addresses_of(const std::vector<at::Tensor>& state) const;
  [[nodiscard]] std::int64_t copied_bytes(const std::vector<at::Tensor>& state) const;
  [[nodiscard]] std::int64_t total_bytes() const;
  void drop();
  void record(const std::vector<at::Tensor>& state, const std::vector<at::Tensor>& batch, const StepOptions& options);
  [[nodiscard]] std::unique_ptr<Recorded> recorded_with(Solution found, const std::vector<at::Tensor>& state,
                                                        const std::vector<at::Tensor>& inputs,
                                                        const StepOptions& options);
  void check_devices(const std::vector<at::Tensor>& arguments, const StepOptions& options);
  [[noreturn]] void refuse(const std::string& why, const StepOptions& options);

  StepProgram step_;
  PlanFinder finder_;  // random calls run once
  std::int64_t resident_bytes_;
  std::vector<std::uint8_t> read_;     // by input
  std::vector<std::uint8_t> changed_;  // by input
  std::int64_t base_bytes_ = 0;        // of what the budget is for, not in the allocator's count
  int steps_before_ = 0;               // without a graph
  int recordings_ = 0;
  std::string refused_;  // why, for these options
  StepOptions refused_for_{};
  std::unique_ptr<Recorded> recorded_;
};

// Of all graphs on a device: in use at every replay, and counted by no allocator.
[[nodiscard]] std::int64_t hidden_bytes(at::Device device);

}  // namespace reprise
