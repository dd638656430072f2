// reprise curve: time against memory.
#include <algorithm>
#include <cmath>

#include "commands.h"
#include "reprise/io.h"
#include "watch.h"

namespace reprise::tools {
namespace {

std::string bar(std::int64_t part, std::int64_t whole) {
  constexpr double kWidth = 40;
  const double share = whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
  return std::string(static_cast<std::size_t>(std::lround(share * kWidth)), '#');
}

Report point_row(const Solution& point, const Graph& graph, bool with_copies, std::int64_t largest_peak) {
  const Simulation& found = point.simulation;
  const Report::Number bound = point.lower_bound_ns ? Report::Number(*point.lower_bound_ns) : std::nullopt;
  const std::int64_t step = step_ns(found);
  Report row;
  row.text("", "budget", format_bytes(found.peak_bytes))
      .number("peak_bytes", "bytes", found.peak_bytes)
      .time("time_ns", "time", found.time_ns, graph.forward_only())
      .number("recompute_ns", "", found.recompute_ns)
      .text("", "overhead", overhead_text(found))
      .number("lower_bound_ns", "", bound)
      .text("", bound ? "at least" : "", bound ? percent(std::max<std::int64_t>(0, *bound - step), step) : "");
  if (with_copies) add_copies(point, graph, row);
  return row.text("", "memory", bar(found.peak_bytes, largest_peak));
}

}  // namespace

int run_curve(Options& options) {
  const auto [graph, costs] = load_graph_with_link(options);
  const Watch watch(options.solve, options.seconds);
  const Curve found = curve(graph, costs, options.solve);

  std::int64_t largest_peak = 0;
  for (const Solution& point : found.points) largest_peak = std::max(largest_peak, point.simulation.peak_bytes);
  std::vector<Report> points;
  for (const Solution& point : found.points) {
    points.push_back(point_row(point, graph, options.link.has_value(), largest_peak));
  }
  Report report = graph_report(graph);
  report.text("planner", "planner", options.solve.planner)
      .text("status", "status", found.stopped ? "stopped" : "feasible")
      .text("message", "", found.message)
      .seconds("seconds", "planned in", watch.elapsed_seconds())
      .rows("points", std::move(points));
  write_text("-", text_of(report, options));
  if (!found.stopped) return kFound;
  complain("stopped early" + (found.message.empty() ? "" : ": " + found.message) + "; these are the best so far");
  return kStopped;
}

}  // namespace reprise::tools
