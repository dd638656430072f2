// reprise plan: a plan within a budget.
#include <cstdio>

#include "commands.h"
#include "reprise/io.h"
#include "watch.h"

namespace reprise::tools {
namespace {

PlanFile plan_file(const Solution& solution, const CostedGraph& file, const Options& options) {
  const Graph planned = planned_graph(file).graph;
  return {.graph = planned.name(),
          .ops = planned.num_ops(),
          .values = planned.num_values(),
          .planner = solution.planner,
          .budget_bytes = options.solve.budget_bytes.value_or(0),
          .simulation = solution.simulation,
          .plan = solution.plan,
          .placement = solution.placement,
          .link = copies(solution.plan) ? options.link : std::nullopt};
}

// What a person must know beyond the table, and the exit code that says it to programs.
int verdict(const Solution& solution) {
  const std::string why = solution.message.empty() ? "" : ": " + solution.message;
  const std::int64_t smallest = solution.smallest_budget_bytes;
  if (solution.found() && solution.stats.arenas > 0 && !solution.placement) {
    complain(solution.message);
    return kInfeasible;
  }
  if (solution.found()) return kFound;
  if (solution.status == Status::kInfeasible) {
    complain("no plan fits " + std::to_string(solution.budget_bytes) + " bytes; the smallest budget known: " +
             (smallest > 0 ? std::to_string(smallest) + " bytes (" + format_bytes(smallest) + ")" : "none"));
    return kInfeasible;
  }
  complain("stopped early" + why + (has_plan(solution) ? "; the plan is the best so far" : "; no plan yet"));
  return kStopped;
}

}  // namespace

int run_plan(Options& options) {
  if (options.solve.planner == "all") return run_plan_all(options);
  const CostedGraph file = load_graph_with_link(options);
  const Watch watch(options.solve, options.seconds);
  const Solution solution = solve(file.graph, file.costs, options.solve);
  Report report = graph_report(file.graph);
  add_solution(solution, file.graph, report);
  if (options.link && has_plan(solution)) add_copies(solution, file.graph, report);
  add_placement(solution.placement, report);
  if (solution.stats.arenas > 0)
    report.number("arenas", "plans packed", static_cast<std::int64_t>(solution.stats.arenas));
  report.seconds("seconds", "planned in", watch.elapsed_seconds());
  if (has_plan(solution) && !options.plan.empty()) {
    write_text(options.plan, format_plan(plan_file(solution, file, options)));
  }
  if (options.plan == "-") {
    std::fputs(text_of(report, options).c_str(), stderr);
  } else {
    write_text("-", text_of(report, options));
  }
  return verdict(solution);
}

}  // namespace reprise::tools
