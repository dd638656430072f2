// reprise simulate: what a plan costs, what holds the memory at its peak, and how large an arena it needs.
#include <algorithm>

#include "commands.h"
#include "reprise/io.h"
#include "reprise/simulate.h"

namespace reprise::tools {
namespace {

std::string action_text(const Graph& graph, const Plan& plan, std::size_t i) {
  if (i >= plan.actions.size() || !plan.actions[i].computes()) return "the start";
  return "action " + std::to_string(i) + " of " + std::to_string(plan.actions.size()) + ", '" +
         graph.op_name(plan.actions[i].op()) + "'";
}

Report value_row(const CostedGraph& step, ValueId value) {
  const Graph& graph = step.graph;
  const std::int64_t bytes = step.costs.value_bytes[index(value)];
  const OpId maker = graph.producer(value);
  const std::string there = graph.residence(value) == Residence::kResident ? "(resident)" : "(arriving)";
  return Report()
      .text("", "size", format_bytes(bytes))
      .number("bytes", "bytes", bytes)
      .number("value", "value", static_cast<std::int64_t>(index(value)))
      .text("op", "made by", maker == kNoOp ? there : graph.op_name(maker))
      .text("scope", "scope", maker == kNoOp ? "" : graph.scope_name(maker));
}

}  // namespace

int run_simulate(Options& options) {
  const CostedGraph file_step = load_graph(options.graph);
  CostedGraph step = planned_graph(file_step);
  const PlanFile file = load_plan(options.plan, step);
  const Timeline found = timeline(step.graph, step.costs, file.plan);

  std::vector<Report> live;
  for (std::size_t i = 0; i < std::min(options.top, found.live_at_peak.size()); ++i) {
    live.push_back(value_row(step, found.live_at_peak[i]));
  }
  const bool in_units = file_step.graph.forward_only();
  Report report = graph_report(step.graph);
  report.text("planner", "planner", file.planner)
      .bytes("budget_bytes", file.budget_bytes > 0 ? "budget" : "", file.budget_bytes)
      .bytes("peak_bytes", "peak", found.total.peak_bytes)
      .time("time_ns", "time", found.total.time_ns, in_units)
      .time("recompute_ns", "recomputed", found.total.recompute_ns, in_units);
  if (file.link) {
    report.time("wait_ns", "waiting for copies", found.total.wait_ns, in_units)
        .bytes("host_peak_bytes", "host's memory", found.total.host_peak_bytes);
  }
  add_exposed(found.total, step.graph, report);
  report.bytes("start_bytes", "at the start", found.start_bytes)
      .text("", "peak at", action_text(step.graph, file.plan, found.peak_action))
      .number("peak_action", "", static_cast<std::int64_t>(found.peak_action))
      .number("values_at_peak", "values there", static_cast<std::int64_t>(found.live_at_peak.size()));
  add_placement(
      options.solve.addresses ? place(step.graph, step.costs, file.plan, *options.solve.addresses) : file.placement,
      report);
  report.rows("live_at_peak", std::move(live));
  write_text("-", text_of(report, options));
  return kFound;
}

}  // namespace reprise::tools
