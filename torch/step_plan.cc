#include "torch/step_plan.h"

#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace reprise {
namespace {

// The gradient of the loss is one; others are zero.
std::vector<at::Tensor> seeds_of(const Program& program) {
  std::vector<at::Tensor> seeds;
  for (const auto& use : program.seeds) {
    if (!use) {
      seeds.emplace_back();
      continue;
    }
    const Geometry& geometry = use->geometry;
    at::Tensor seed = at::empty_strided(geometry.sizes, geometry.strides,
                                        at::TensorOptions().dtype(geometry.dtype).device(program.device));
    seeds.push_back(seeds.empty() ? seed.fill_(1) : seed.zero_());
  }
  return seeds;
}

}  // namespace

Solution find_plan(const Graph& graph, const StepOptions& options, std::optional<std::int64_t> room) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.planning_seconds);
  SolveOptions asked{.planner = room ? options.planner : "none", .budget_bytes = room};
  if (room) asked.budget_bytes = std::max<std::int64_t>(0, *room);
  asked.should_stop = [end] { return std::chrono::steady_clock::now() > end; };
  return solve(graph, asked);
}

bool fits(const Solution& solution, std::optional<std::int64_t> room) {
  return !solution.plan.steps.empty() && (!room || solution.simulation.peak_bytes <= *room);
}

StepResult run_step(const Executor& executor, std::span<const at::Tensor> arguments) {
  StepState running;
  auto outputs = executor.forward(arguments, running);
  const std::vector<at::Tensor> seeds = seeds_of(executor.program());
  return {std::move(outputs), executor.backward(seeds, running)};
}

}  // namespace reprise
