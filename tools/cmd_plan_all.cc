// reprise plan --planner all: every planner at one budget, side by side.
#include "commands.h"
#include "reprise/io.h"
#include "watch.h"

namespace reprise::tools {
namespace {

Report planner_row(const Solution& solution, const Graph& graph, double seconds) {
  const bool planned = has_plan(solution);
  const Simulation& found = solution.simulation;
  const auto known = [&](std::int64_t number) { return planned ? Report::Number(number) : std::nullopt; };
  return Report()
      .text("planner", "planner", solution.planner)
      .text("status", "status", status_name(solution.status))
      .number("peak_bytes", "", known(found.peak_bytes))
      .text("", "peak", planned ? format_bytes(found.peak_bytes) : "-")
      .time("time_ns", "", known(found.time_ns), graph.forward_only())
      .number("recompute_ns", "", known(found.recompute_ns))
      .text("", "overhead", planned ? overhead_text(found) : "-")
      .number("smallest_budget_bytes", "", solution.smallest_budget_bytes)
      .text("", "smallest", solution.smallest_budget_bytes > 0 ? format_bytes(solution.smallest_budget_bytes) : "-")
      .seconds("seconds", "planned in", seconds)
      .text("message", "", solution.message);
}

}  // namespace

int run_plan_all(Options& options) {
  const auto [graph, costs] = load_graph_with_link(options);
  std::vector<Report> rows;
  bool any_found = false;
  bool any_stopped = false;
  for (const std::string_view planner : planner_names()) {
    SolveOptions solve_options = options.solve;
    solve_options.planner = planner;
    const Watch watch(solve_options, options.seconds);
    const Solution solution = solve(graph, costs, solve_options);
    any_found = any_found || solution.found();
    any_stopped = any_stopped || solution.status == Status::kStopped;
    rows.push_back(planner_row(solution, graph, watch.elapsed_seconds()));
  }
  Report report = graph_report(graph);
  if (options.solve.budget_bytes) report.bytes("budget_bytes", "budget", *options.solve.budget_bytes);
  report.rows("planners", std::move(rows));
  write_text("-", text_of(report, options));
  if (any_found) return kFound;
  return any_stopped ? kStopped : kInfeasible;
}

}  // namespace reprise::tools
