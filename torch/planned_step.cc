#include "torch/planned_step.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <unordered_map>
#include <utility>

#include "reprise/error.h"
#include "torch/capture_step.h"
#include "torch/generator.h"
#include "torch/meter.h"
#include "torch/profile.h"

namespace reprise {
namespace {

constexpr std::int64_t kEnoughNs = 5'000'000;  // per call
// A plan made for less memory than there is now is kept while it would gain at most this share of the budget.
constexpr double kSlack = 0.02;

// Calls that are alike are measured once.
void measure_calls(Program& program) {
  const GeneratorReplay random_numbers_stay(at::kCPU, generator_state(at::kCPU));
  std::unordered_map<std::string, Measurement> known;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (program.ops[i].kind != ProgramOp::Kind::kCall) continue;
    const auto [found, is_new] = known.try_emplace(signature(program, op_id(i)));
    if (is_new) found->second = measure(program, op_id(i), kEnoughNs);
    program.ops[i].time_ns = found->second.time_ns;
    program.ops[i].workspace_bytes = found->second.workspace_bytes;
  }
}

std::int64_t resident_bytes_of(const Program& program) {
  std::int64_t total = 0;
  for (const ProgramValue& value : program.values) {
    if (value.residence == Residence::kResident) total += value.bytes;
  }
  return total;
}

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

PlannedStep::PlannedStep(StepProgram step)
    : step_(std::move(step)), graph_([this] {
        measure_calls(*step_.program);
        return make_graph(*step_.program);
      }()) {
  resident_bytes_ = resident_bytes_of(*step_.program);
}

PlannedStep::Planned PlannedStep::make_plan(const StepOptions& options, std::int64_t outside,
                                            std::optional<std::int64_t> room) const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.planning_seconds);
  SolveOptions asked{.planner = room ? options.planner : "none", .budget_bytes = room};
  if (room) asked.budget_bytes = std::max<std::int64_t>(0, *room);
  asked.should_stop = [end] { return std::chrono::steady_clock::now() > end; };
  Solution found = solve(graph_, asked);
  const bool fits = !found.plan.steps.empty() && (!room || found.simulation.peak_bytes <= *room);
  if (!fits) {
    const std::int64_t beside = outside + options.reserve_bytes;
    throw InputError("'" + step_.program->name + "' cannot be trained inside " + std::to_string(*options.budget_bytes) +
                     " bytes: the smallest budget found is " + std::to_string(found.smallest_budget_bytes + beside) +
                     ", of which " + std::to_string(beside) +
                     " are allocated beside the step or reserved. Raise the budget or make the batch smaller");
  }
  auto executor = std::make_unique<Executor>(step_.program, found.plan);
  return {std::move(found), std::move(executor), asked.planner, room};
}

const PlannedStep::Planned& PlannedStep::planned_for(const StepOptions& options, std::int64_t outside) {
  std::optional<std::int64_t> room;
  if (options.budget_bytes) room = *options.budget_bytes - outside - options.reserve_bytes;
  const Planned* best = nullptr;
  for (const Planned& planned : plans_) {
    const Simulation& simulation = planned.solution.simulation;
    if (room && simulation.peak_bytes > *room) continue;
    if (simulation.recompute_ns > 0 && (!room || planned.planner != options.planner)) continue;
    if (best == nullptr || simulation.time_ns < best->solution.simulation.time_ns) best = &planned;
  }
  if (best != nullptr) {
    const std::int64_t gained = room && best->room_bytes ? *room - *best->room_bytes : 0;
    const double slack = kSlack * static_cast<double>(options.budget_bytes.value_or(0));
    if (best->solution.simulation.recompute_ns == 0 || static_cast<double>(gained) <= slack) return *best;
  }
  plans_.push_back(make_plan(options, outside, room));
  Planned& made = plans_.back();
  // Where more room gained nothing, that is known now.
  for (Planned& planned : plans_) {
    const bool fits = !room || planned.solution.simulation.peak_bytes <= *room;
    if (fits && planned.planner == made.planner && planned.room_bytes &&
        planned.solution.simulation.time_ns <= made.solution.simulation.time_ns) {
      planned.room_bytes = room;
    }
  }
  return made;
}

const StepSummary& PlannedStep::plan(const std::vector<at::Tensor>& state, const StepOptions& options) {
  const std::int64_t outside = outside_bytes(state);
  summarize(planned_for(options, outside), outside);
  return summary_;
}

void PlannedStep::summarize(const Planned& planned, std::int64_t outside) {
  summary_ = {.planner = planned.planner,
              .peak_bytes = planned.solution.simulation.peak_bytes + outside,
              .time_ns = planned.solution.simulation.time_ns,
              .recompute_ns = planned.solution.simulation.recompute_ns,
              .lower_bound_ns = planned.solution.lower_bound_ns};
}

at::Tensor PlannedStep::run(const std::vector<at::Tensor>& state, const std::vector<at::Tensor>& batch,
                            const StepOptions& options) {
  const Program& program = *step_.program;
  const std::int64_t outside = outside_bytes(state);
  const Planned& planned = planned_for(options, outside);
  summarize(planned, outside);
  const at::NoGradGuard no_grad;
  const std::int64_t entry = read_meter(program.device).allocated_bytes;
  reset_meter_peak(program.device);
  StepState running;
  auto outputs = planned.executor->forward(arguments_of(step_, state, batch), running);
  const std::vector<at::Tensor> seeds = seeds_of(program);
  const auto gradients = planned.executor->backward(seeds, running);
  measured_peak_bytes_ = outside + resident_bytes_ + read_meter(program.device).peak_bytes - entry;
  add_gradients(step_, gradients, state);
  return std::move(*outputs.front());
}

std::int64_t PlannedStep::outside_bytes(const std::vector<at::Tensor>& state) const {
  const at::Device device = step_.program->device;
  if (!device.is_cpu()) return read_meter(device).allocated_bytes - resident_bytes_;
  std::set<const c10::StorageImpl*> seen;
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : state) {
    if (!tensor.is_leaf() || !tensor.grad().defined()) continue;
    const c10::Storage& storage = tensor.grad().storage();
    if (seen.insert(storage.unsafeGetStorageImpl()).second) bytes += static_cast<std::int64_t>(storage.nbytes());
  }
  return bytes;
}

}  // namespace reprise
