#include "runtime/session/planned_step.h"

#include <ATen/core/grad_mode.h>

#include <set>
#include <unordered_map>
#include <utility>

#include "reprise/error.h"
#include "runtime/costs/profile.h"
#include "runtime/device/cuda_graph.h"
#include "runtime/device/generator.h"
#include "runtime/device/meter.h"
#include "runtime/kernels/kernel.h"
#include "runtime/program/program_queries.h"
#include "runtime/record/capture_step.h"
#include "runtime/session/step_plan.h"

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
    const auto [found, is_new] = known.try_emplace(Kernel(*program.ops[i].call).describe(program));
    if (is_new) found->second = measure(program, op_id(i), kEnoughNs);
    program.ops[i].time_ns = found->second.time_ns;
    program.ops[i].workspace_bytes = found->second.workspace_bytes;
  }
}

}  // namespace

PlannedStep::PlannedStep(StepProgram step)
    : step_(std::move(step)), finder_([this] {
        split_blocks_exactly(step_.program->device);
        measure_calls(*step_.program);
        return make_graph(*step_.program);
      }()) {
  resident_bytes_ = resident_bytes(*step_.program);
}

PlannedStep::Planned PlannedStep::make_plan(const StepOptions& options, std::int64_t outside,
                                            std::optional<std::int64_t> room) {
  Solution found = finder_.find(options, room);
  if (!fits(found, room)) {
    const std::int64_t beside = outside + options.reserve_bytes;
    throw InputError("'" + step_.program->name + "' cannot be trained inside " + std::to_string(*options.budget_bytes) +
                     " bytes: the smallest budget found is " + std::to_string(found.smallest_budget_bytes + beside) +
                     ", of which " + std::to_string(beside) +
                     " are allocated beside the step or reserved. Raise the budget or make the batch smaller");
  }
  auto executor = std::make_unique<Executor>(step_.program, found.plan);
  return {std::move(found), std::move(executor), room ? options.planner : "none", room};
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
  if (options.cuda_graphs == CudaGraphs::kOn) check_cuda_graphs(step_.program->device);
  graphed_.reset();
  const std::int64_t outside = outside_bytes(state);
  const Planned& planned = planned_for(options, outside);
  summarize(planned.solution, planned.planner, planned.solution.simulation.peak_bytes + outside);
  return summary_;
}

void PlannedStep::summarize(const Solution& solution, const std::string& planner, std::int64_t peak) {
  summary_ = {.planner = planner,
              .peak_bytes = peak,
              .time_ns = solution.simulation.time_ns,
              .recompute_ns = solution.simulation.recompute_ns,
              .lower_bound_ns = solution.lower_bound_ns};
}

GraphedStep* PlannedStep::graph_for(const std::vector<at::Tensor>& state, const std::vector<at::Tensor>& batch,
                                    const StepOptions& options) {
  if (options.cuda_graphs == CudaGraphs::kOff) {
    graphed_.reset();
    return nullptr;
  }
  if (graphed_ == nullptr) graphed_ = std::make_unique<GraphedStep>(step_, resident_bytes_);
  return graphed_->ready(state, batch, options, outside_bytes(state)) ? graphed_.get() : nullptr;
}

void PlannedStep::release_graph() {
  if (graphed_ != nullptr) graphed_->release();
}

at::Tensor PlannedStep::run(const std::vector<at::Tensor>& state, const std::vector<at::Tensor>& batch,
                            const StepOptions& options) {
  const at::Device device = step_.program->device;
  const at::NoGradGuard no_grad;
  GraphedStep* graph = graph_for(state, batch, options);
  const std::int64_t outside = outside_bytes(state);
  const Executor* executor = nullptr;
  if (graph != nullptr) {
    summarize(graph->solution(), options.budget_bytes ? options.planner : "none", graph->peak_bytes(state));
    summary_.as_cuda_graph = true;
  } else {
    const Planned& planned = planned_for(options, outside);
    summarize(planned.solution, planned.planner, planned.solution.simulation.peak_bytes + outside);
    executor = planned.executor.get();
  }
  const std::int64_t entry = read_meter(device).allocated_bytes;
  reset_meter_peak(device);
  const auto note_peak = [&] {
    measured_peak_bytes_ = outside + resident_bytes_ + read_meter(device).peak_bytes - entry;
  };
  if (graph != nullptr) {
    at::Tensor loss = graph->run(state, batch);
    note_peak();
    return loss;
  }
  StepResult result = run_step(*executor, arguments_of(step_, state, batch));
  note_peak();
  add_gradients(step_, result.gradients, state);
  return std::move(*result.outputs.front());
}

std::int64_t PlannedStep::outside_bytes(const std::vector<at::Tensor>& state) const {
  const at::Device device = step_.program->device;
  const std::int64_t hidden = hidden_bytes(device);
  if (!device.is_cpu()) return read_meter(device).allocated_bytes + hidden - resident_bytes_;
  std::set<const c10::StorageImpl*> seen;
  std::int64_t bytes = hidden;
  for (const at::Tensor& tensor : state) {
    if (!tensor.is_leaf() || !tensor.grad().defined()) continue;
    const c10::Storage& storage = tensor.grad().storage();
    if (seen.insert(storage.unsafeGetStorageImpl()).second) bytes += static_cast<std::int64_t>(storage.nbytes());
  }
  return bytes;
}

}  // namespace reprise
