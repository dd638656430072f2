#include "commands.h"

#include <cstdio>
#include <utility>

#include "reprise/error.h"
#include "reprise/io.h"
#include "reprise/papers.h"
#include "reprise/simulate.h"
#include "reprise/validate.h"

namespace reprise::tools {
namespace {

std::int64_t number(std::size_t count) { return static_cast<std::int64_t>(count); }

std::optional<Report> formula_report(const std::optional<Formula>& formula) {
  if (!formula) return std::nullopt;
  return Report()
      .number("overhead", "", formula->overhead)
      .number("peak_bytes", "", formula->peak_bytes)
      .number("cached_bytes", "", formula->cached_bytes)
      .number("blocks", "", number(formula->blocks));
}

std::string formula_text(const Formula& formula) {
  return "overhead " + std::to_string(formula.overhead) + ", peak " + format_bytes(formula.peak_bytes) + ", cached " +
         format_bytes(formula.cached_bytes) + ", " + std::to_string(formula.blocks) + " blocks";
}

Report::Number planned_bound(const Solution& solution) {
  return solution.lower_bound_ns ? Report::Number(*solution.lower_bound_ns) : std::nullopt;
}

// What the step takes longer than without recomputation and waiting.
std::int64_t added_ns(const Simulation& found) { return found.recompute_ns + found.wait_ns + found.exposed_ns; }

// How far the plan is from the proven lower bound.
std::string gap_text(const Solution& solution) {
  const std::optional<std::int64_t> gap = solution.gap_ns();
  if (!gap) return "";
  return "at most " + percent(*gap, step_ns(solution.simulation)) + " of the step" +
         (solution.reordered ? ", for backward in the order of this plan" : "");
}

std::string costs_text(const Simulation& s) {
  return "peak_bytes " + std::to_string(s.peak_bytes) + ", time_ns " + std::to_string(s.time_ns) + ", recompute_ns " +
         std::to_string(s.recompute_ns) +
         (s.host_peak_bytes == 0
              ? ""
              : ", wait_ns " + std::to_string(s.wait_ns) + ", host_peak_bytes " + std::to_string(s.host_peak_bytes)) +
         (s.exposed_ns == 0 ? "" : ", exposed_ns " + std::to_string(s.exposed_ns));
}

}  // namespace

std::int64_t step_ns(const Simulation& found) { return found.time_ns - added_ns(found); }
std::string overhead_text(const Simulation& found) { return percent(added_ns(found), step_ns(found)); }

std::string status_name(Status status) {
  switch (status) {
    case Status::kOptimal:
      return "optimal";
    case Status::kFeasible:
      return "feasible";
    case Status::kInfeasible:
      return "infeasible";
    case Status::kStopped:
      return "stopped";
  }
  return "unknown";
}

std::string source_name(const std::string& path) { return path == "-" ? "standard input" : path; }

CostedGraph load_graph(const std::string& path) { return parse_graph(read_text(path), source_name(path)); }

CostedGraph load_graph_with_link(const Options& options) {
  CostedGraph file = load_graph(options.graph);
  if (options.link) file.costs.link = options.link;
  return file;
}

CostedGraph planned_graph(const CostedGraph& file) {
  return file.graph.forward_only() ? complete_backward(file.graph, file.costs) : file;
}

PlanFile load_plan(const std::string& path, CostedGraph& step) {
  const Graph& graph = step.graph;
  const std::string source = source_name(path);
  PlanFile file = parse_plan(read_text(path), source);
  if (file.ops != graph.num_ops() || file.values != graph.num_values()) {
    throw InputError(source + ": this plan is for another graph: it has " + std::to_string(file.ops) + " ops and " +
                     std::to_string(file.values) + " values, but this graph has " + std::to_string(graph.num_ops()) +
                     " and " + std::to_string(graph.num_values()));
  }
  if (const auto violation = validate(graph, file.plan)) throw InputError(source + ": " + violation->message);
  step.costs.link = file.link;
  const Simulation found = simulate(graph, step.costs, file.plan);
  if (found != file.simulation) {
    throw InputError(source + ": says " + costs_text(file.simulation) + "; the simulator says " + costs_text(found));
  }
  if (!file.placement) return file;
  if (const auto wrong = validate_addresses(graph, step.costs, file.plan, *file.placement)) {
    throw InputError(source + ": addresses: " + *wrong);
  }
  return file;
}

Report graph_report(const Graph& graph) {
  return Report()
      .text("graph", "graph", graph.name())
      .number("ops", "ops", number(graph.num_ops()))
      .number("values", "values", number(graph.num_values()));
}

void add_exposed(const Simulation& found, const Graph& graph, Report& report) {
  if (graph.num_communicators() == 0) return;
  report.number("communicators", "communicators", graph.num_communicators())
      .time("exposed_ns", "waiting for them", found.exposed_ns, graph.forward_only());
}

bool has_plan(const Solution& solution) { return solution.found() || !solution.plan.actions.empty(); }

void add_solution(const Solution& solution, const Graph& graph, Report& report) {
  const auto planned = [&](std::int64_t n) { return has_plan(solution) ? Report::Number(n) : std::nullopt; };
  const Simulation& found = solution.simulation;
  const std::int64_t smallest = solution.smallest_budget_bytes;
  report.text("planner", "planner", solution.planner)
      .text("status", "status", status_name(solution.status))
      .bytes("budget_bytes", "budget", solution.budget_bytes)
      .bytes("peak_bytes", "peak", planned(found.peak_bytes))
      .time("time_ns", "time", planned(found.time_ns), graph.forward_only())
      .time("recompute_ns", "recomputed", planned(found.recompute_ns), graph.forward_only())
      .text("", "overhead", has_plan(solution) ? overhead_text(found) : "");
  add_exposed(found, graph, report);
  report.time("lower_bound_ns", "", planned_bound(solution), graph.forward_only())
      .flag("reordered", solution.reordered)
      .text("", "gap", gap_text(solution))
      .bytes("floor_bytes", "floor", solution.floor_bytes > 0 ? Report::Number(solution.floor_bytes) : std::nullopt)
      .bytes("smallest_budget_bytes", "smallest", smallest > 0 ? Report::Number(smallest) : std::nullopt)
      .text("", "by formula", solution.formula ? formula_text(*solution.formula) : "")
      .part("formula", formula_report(solution.formula))
      .number("overhead_error", "", solution.overhead_error)
      .part("stats", Report()
                         .number("nodes", "", number(solution.stats.nodes))
                         .number("lower_sets", "", number(solution.stats.lower_sets))
                         .number("partials", "", number(solution.stats.partials))
                         .number("candidates", "", number(solution.stats.candidates)))
      .text("message", solution.found() ? "note" : "", solution.message);
}

void add_copies(const Solution& solution, const Graph& graph, Report& report) {
  report.time("wait_ns", "waiting for copies", solution.simulation.wait_ns, graph.forward_only())
      .bytes("host_peak_bytes", "host's memory", solution.simulation.host_peak_bytes);
}

void add_placement(const std::optional<Placement>& placement, Report& report) {
  if (!placement) return;
  report.bytes("arena_bytes", "arena", placement->arena_bytes)
      .bytes("load_bytes", "load", placement->load_bytes)
      .number("addresses", "addresses", number(placement->addresses.size()));
}

std::string text_of(const Report& report, const Options& options) {
  return options.json ? report.json() + "\n" : report.tables();
}

void complain(const std::string& text) { std::fputs(("reprise: " + printable(text) + "\n").c_str(), stderr); }

}  // namespace reprise::tools
