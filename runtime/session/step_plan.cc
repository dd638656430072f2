#include "runtime/session/step_plan.h"

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

Solution PlanFinder::find(const StepOptions& options, std::optional<std::int64_t> room) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.planning_seconds);
  if (!room) return solve(graph_, {.planner = "none"});
  SolveOptions asked{.planner = options.planner, .budget_bytes = std::max<std::int64_t>(0, *room)};
  asked.should_stop = [end] { return std::chrono::steady_clock::now() > end; };
  Solution found = solve(graph_, asked);
  remember(found);
  const Solution* best = fits(found, room) ? &found : nullptr;
  for (const Solution& known : known_) {
    if (known.planner != found.planner) continue;
    if (found.smallest_budget_bytes > 0) {
      found.smallest_budget_bytes = std::min(found.smallest_budget_bytes, known.simulation.peak_bytes);
    }
    if (!fits(known, room)) continue;
    if (best == nullptr || known.simulation.time_ns < best->simulation.time_ns) best = &known;
  }
  if (best != nullptr && best != &found) found = *best;
  found.budget_bytes = *asked.budget_bytes;
  return found;
}

void PlanFinder::remember(const Solution& found) {
  Solution plan = found;
  if (plan.plan.steps.empty()) {
    plan.plan = std::exchange(plan.smallest_plan, {});
    plan.simulation = simulate(graph_, plan.plan);
    plan.status = Status::kFeasible;
    plan.message.clear();
  }
  plan.lower_bound_ns.reset();  // that of another room
  const auto beats = [](const Solution& a, const Solution& b) {
    return a.planner == b.planner && a.simulation.peak_bytes <= b.simulation.peak_bytes &&
           a.simulation.time_ns <= b.simulation.time_ns;
  };
  if (std::ranges::any_of(known_, [&](const Solution& known) { return beats(known, plan); })) return;
  std::erase_if(known_, [&](const Solution& known) { return beats(plan, known); });
  known_.push_back(std::move(plan));
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
