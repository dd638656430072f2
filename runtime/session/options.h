// What the user asked for. All sessions of a model share one object; a change takes effect at the next step.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "reprise/torch/training_step.h"
#include "runtime/device/meter.h"
#include "runtime/session/model_arena.h"
#include "runtime/session/model_host.h"

namespace reprise {

struct SessionOptions {
  std::optional<std::int64_t> budget_bytes{};  // nothing: no recomputation
  std::int64_t reserve_bytes = 0;
  std::int64_t host_budget_bytes = 0;  // memory of the host that steps may store values in
  bool park_optimizer = false;         // and, if the budget needs it, the optimizer's state
  std::string planner = "auto";
  double planning_seconds = 10;
  double waiting_seconds = 0.5;  // how long a step waits for a plan; the rest of the search goes on beside the steps
  bool measure = true;           // measure the cost of each call; otherwise use the roofline
  bool watch = true;             // measure what steps take, and their caller; otherwise whoever calls them does
  CudaGraphs cuda_graphs = CudaGraphs::kAuto;
  UseArena arena = UseArena::kOff;
  UseSlices slices = UseSlices::kExact;
  int steps_before_cuda_graphs = 2;  // in which libraries choose algorithms and the caller's needs become known
  double launch_bound = 0.8;         // graphs are used if issuing takes at least this share of a step's time

  // By device. Made when a step needs it; the block lives until the model is restored.
  mutable std::map<std::string, std::shared_ptr<ModelArena>> arenas{};
  mutable std::map<std::string, std::shared_ptr<ModelHost>> hosts{};
  mutable MeteredSince metered{};  // on the CPU, what counts beside what belongs to the model
  mutable std::mutex turn{};       // the model's sessions take turns: they share a budget

  [[nodiscard]] bool parks() const { return park_optimizer && host_budget_bytes > 0; }
};

// The arena of the model on a device.
[[nodiscard]] inline std::shared_ptr<ModelArena> arena_of(const SessionOptions& options, c10::Device device) {
  std::shared_ptr<ModelArena>& arena = options.arenas[device.str()];
  if (arena == nullptr) arena = make_model_arena(numbered(device));
  return arena;
}

// Brings back what steps of the model have stored of the optimizer's state and not fetched yet.
inline void bring_back_state(const SessionOptions& options) {
  for (const auto& [device, host] : options.hosts) host->bring_back_state();
}

[[nodiscard]] inline std::shared_ptr<ModelHost> host_of(const SessionOptions& options, c10::Device device) {
  std::shared_ptr<ModelHost>& host = options.hosts[device.str()];
  if (host == nullptr) host = std::make_shared<ModelHost>();
  return host;
}

}  // namespace reprise
