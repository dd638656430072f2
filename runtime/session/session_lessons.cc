// What a session learns from steps that have run: what the caller needs between forward and backward, and what steps
// really take.
#include <algorithm>
#include <utility>

#include "reprise/io.h"
#include "reprise/torch/errors.h"
#include "runtime/device/meter.h"
#include "runtime/messages.h"
#include "runtime/session/session.h"

namespace reprise {

std::int64_t Session::highest(std::int64_t peak, const std::shared_ptr<Trace>& trace) {
  if (trace == nullptr) return peak;
  for (const std::int64_t bytes : trace->during_bytes) peak = std::max(peak, bytes);
  return peak;
}

// Compares what the caller allocated with what was planned for.
void Session::meet_caller(Open& open, const std::vector<at::Tensor>& seeds) {
  const MeterReading now = read_meter(program().device);
  open.caller_peak_bytes = open.forward_peak_bytes ? now.peak_bytes : now.allocated_bytes;
  open.caller_end_bytes = now.allocated_bytes;
  std::set<std::size_t> missing;
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    if (!seeds[i].defined()) missing.insert(i);
  }
  const std::int64_t given = caller_.seed_bytes_without(missing);
  const std::int64_t before = open.end_bytes + open.returned_bytes + given;
  const std::int64_t kept = std::max<std::int64_t>(0, now.allocated_bytes - before);
  const std::int64_t workspace = std::max<std::int64_t>(0, open.caller_peak_bytes - before - kept);
  const std::int64_t more =
      std::max<std::int64_t>(0, kept + given - caller_.kept_bytes() - caller_.planned_seed_bytes());
  std::erase_if(missing, [&](std::size_t i) { return !caller_.optional_seeds().contains(i); });
  if (caller_.learn(workspace, kept, std::move(missing))) look_again();
  if (!open.room_bytes || !options_->budget_bytes) return;
  const std::string budget = format_bytes(*options_->budget_bytes);
  const std::int64_t reached = open.total_bytes + open.caller_peak_bytes - open.entry_bytes;
  if (reached > *options_->budget_bytes) {
    log_line(Severity::kWarning, program().name + ": between forward and backward memory reached " +
                                     format_bytes(reached) + ", above the budget of " + budget +
                                     (open.returned_bytes > 0 ? ", because state of the optimizer was asked for"
                                                              : "; the next step is planned for it"));
  }
  const std::int64_t backward =
      open.plan->arena ? open.plan->arena->backward_peak_bytes : open.plan->backward_peak_bytes;
  if (open.returned_bytes > 0 && backward + more + open.returned_bytes > *open.room_bytes) {
    throw BudgetExceeded("between forward and backward " + format_bytes(open.returned_bytes) +
                         " of the optimizer's state were brought back from the host's memory, because they were asked "
                         "for, and backward would not stay inside the budget of " +
                         budget + ". Ask for them before the call of the model or after backward.");
  }
  if (more > 0 && backward + more > *open.room_bytes) {
    throw BudgetExceeded("between forward and backward " + format_bytes(kept) + " were allocated and kept, " +
                         format_bytes(more) + " more than this step was planned for, and backward would not stay " +
                         "inside the budget of " + budget + ". The next plan counts it: run the step again.");
  }
}

// Drops plans that the caller's true needs have made wrong, or too tight for the memory they leave unused.
void Session::look_again() {
  planning_.stop();  // what it searches for is no longer the step
  const Costs before = costs_;
  caller_.apply(costs_);
  for (const PlanMethod& method : around_.family == nullptr ? methods() : std::vector<PlanMethod>()) {
    PlanBook(graph_, costs_, method).carry_over(PlanBook(graph_, before, method));
  }
  std::vector<std::shared_ptr<PlanAtWork>> kept;
  for (const auto& plan : plans_) {
    const std::int64_t peak = plan->found.simulation.peak_bytes;
    plan->found.simulation = simulate(graph_, costs_, plan->found.plan);
    plan->backward_peak_bytes = backward_peak(plan->found.plan);
    plan->beside_arena.reset();
    plan->smaller.reset();
    const Simulation& now = plan->found.simulation;
    const auto unused = static_cast<double>(peak - now.peak_bytes);
    const bool is_right = !plan->room_bytes || now.peak_bytes <= *plan->room_bytes;
    const bool is_tight = plan->room_bytes && now.recompute_ns + now.exposed_ns > 0 &&
                          unused > kSlack * static_cast<double>(*plan->room_bytes);
    const bool stays = plan_is_given_ || (is_right && (!is_tight || plan->found.is_provisional));
    // Several processes drop their plans together, at the next call.
    wants_new_plans_ = wants_new_plans_ || (around_.together != nullptr && !stays);
    if (stays || around_.together != nullptr) kept.push_back(plan);
  }
  plans_ = std::move(kept);
}

void Session::note_peak(const Open& open) {
  const at::Device device = program().device;
  PlanAtWork& plan = *open.plan;
  const std::int64_t backward_peak = highest(read_meter(device).peak_bytes, open.trace);
  const std::int64_t base = open.total_bytes - open.entry_bytes;
  measured_peak_bytes_ = base + std::max({*open.forward_peak_bytes, open.caller_peak_bytes, backward_peak});
  if (!open.is_as_planned) return;  // it says nothing of this plan
  plan.measured_peak_bytes = measured_peak_bytes_;
  ++plan.measured_steps;
  if (open.trace != nullptr) plan.measured = measured_memory(open);
  // On the CPU there is no excess. On CUDA a library may use another algorithm than the one that was measured.
  const std::int64_t excess = *plan.measured_peak_bytes - plan.peak_bytes();
  const bool is_settled = !around_.caller_is_user || caller_.steps() > 2;
  if (!device.is_cpu() && is_settled && open.returned_bytes == 0 && excess > excess_bytes_) {
    log_line(Severity::kWarning, program().name + ": a step took " + format_bytes(excess) +
                                     " more than its plan; the next ones are planned for it");
    excess_bytes_ = excess;
  }
}

// The caller's bytes are inserted where forward ended.
MeasuredMemory Session::measured_memory(const Open& open) const {
  MeasuredMemory memory{open.trace->during_bytes, open.trace->after_bytes};
  const auto boundary = static_cast<std::ptrdiff_t>(caller_action(open.plan->found.plan));
  memory.during_bytes.insert(memory.during_bytes.begin() + boundary, open.caller_peak_bytes);
  memory.after_bytes.insert(memory.after_bytes.begin() + boundary, open.caller_end_bytes);
  const std::int64_t base = open.total_bytes - open.entry_bytes;
  for (auto* list : {&memory.during_bytes, &memory.after_bytes}) {
    for (std::int64_t& bytes : *list) bytes += base;
  }
  return memory;
}

}  // namespace reprise
