// What the user asked of a model's steps. All sessions of a model share one; a change counts from the next step on.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "reprise/torch/training_step.h"

namespace reprise {

struct SessionOptions {
  std::optional<std::int64_t> budget_bytes{};  // nothing: no recomputation
  std::int64_t reserve_bytes = 0;
  std::string planner = "auto";
  double planning_seconds = 10;
  bool measure = true;  // the cost of each call; else the roofline's
  CudaGraphs cuda_graphs = CudaGraphs::kAuto;
  int steps_before_cuda_graphs = 2;  // libraries choose algorithms, and the caller's needs become known
  double launch_bound = 0.8;         // share of a step's time from which on issuing it is what takes long

  mutable std::mutex turn{};  // the model's sessions take turns: they share a budget
};

}  // namespace reprise
