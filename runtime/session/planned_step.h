// A captured step that is profiled, planned for the memory there is, and run.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "reprise/solve.h"
#include "reprise/torch/training_step.h"
#include "runtime/engine/executor.h"
#include "runtime/program/step_program.h"
#include "runtime/session/graphed_step.h"
#include "runtime/session/step_plan.h"

namespace reprise {

class PlannedStep {
 public:
  // Measures the time and workspace of every call.
  explicit PlannedStep(StepProgram step);

  // `state`: what the program's names stand for.
  // A plan for these options and what lies beside the step now. Throws InputError where there is none.
  const StepSummary& plan(const std::vector<at::Tensor>& state, const StepOptions& options);
  // Forward and backward; gradients are added to those of the state.
  at::Tensor run(const std::vector<at::Tensor>& state, const std::vector<at::Tensor>& batch,
                 const StepOptions& options);

  // Gives the memory of a CUDA graph back, if there is one.
  void release_graph();

  [[nodiscard]] const StepSummary& summary() const { return summary_; }
  [[nodiscard]] std::int64_t measured_peak_bytes() const { return measured_peak_bytes_; }

 private:
  struct Planned {
    Solution solution;
    std::unique_ptr<Executor> executor;
    std::string planner;
    std::optional<std::int64_t> room_bytes;
  };
  // Of all that is on the device, what does not belong to the step: on CUDA by the allocator, on the CPU the gradients
  // that are there already. With what graphs hold.
  [[nodiscard]] std::int64_t outside_bytes(const std::vector<at::Tensor>& state) const;
  // The step as a graph, where it runs as one now.
  [[nodiscard]] GraphedStep* graph_for(const std::vector<at::Tensor>& state, const std::vector<at::Tensor>& batch,
                                       const StepOptions& options);
  void summarize(const Solution& solution, const std::string& planner, std::int64_t peak);
  [[nodiscard]] const Planned& planned_for(const StepOptions& options, std::int64_t outside);
  [[nodiscard]] Planned make_plan(const StepOptions& options, std::int64_t outside, std::optional<std::int64_t> room);

  StepProgram step_;
  PlanFinder finder_;
  std::int64_t resident_bytes_ = 0;
  std::vector<Planned> plans_;
  std::unique_ptr<GraphedStep> graphed_;
  StepSummary summary_;
  std::int64_t measured_peak_bytes_ = 0;
};

}  // namespace reprise
