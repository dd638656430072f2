// reprise report: a plan as a page for people, and as a trace for the tools that show traces.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "reprise/error.h"
#include "reprise/io.h"
#include "reprise/report.h"
#include "watch.h"

namespace reprise::tools {
namespace {

// A graph in place of a plan is an easy mistake, and so is a file that does not exist.
void check_is_no_graph(const std::string& path) {
  const auto json = nlohmann::json::parse(read_text(path), nullptr, false);
  if (!json.is_object() || json.value("format", nlohmann::json()) != "reprise.graph") return;
  throw InputError(path + ": this is a graph, not a plan: make a plan with reprise plan " + path + " --budget ... -o " +
                   "net.plan.json, and then reprise report net.plan.json --graph " + path);
}

// net.plan.json -> net.graph.json, as model.plan.save writes them.
std::string graph_beside(const std::string& plan) {
  std::string stem = plan;
  for (const std::string_view suffix : {".json", ".plan"}) {
    if (stem.ends_with(suffix)) stem.resize(stem.size() - suffix.size());
  }
  std::string found = stem + ".graph.json";
  if (plan != "-" && std::filesystem::exists(found)) return found;
  if (plan != "-") check_is_no_graph(plan);
  throw InputError(source_name(plan) + ": which graph is it for? There is no " + found + "; name it with --graph");
}

}  // namespace

int run_report(Options& options) {
  const CostedGraph file_step = load_graph(options.graph.empty() ? graph_beside(options.plan) : options.graph);
  CostedGraph step = planned_graph(file_step);
  const PlanFile file = load_plan(options.plan, step);
  ReportInput input{.graph = step.graph,
                    .costs = step.costs,
                    .plan = file.plan,
                    .planner = file.planner,
                    .budget_bytes = file.budget_bytes,
                    .time_in_units = file_step.graph.forward_only(),
                    .placement = file.placement};
  if (!options.no_curve) {
    const Watch watch(options.solve, options.seconds);
    input.curve = curve(file_step.graph, file_step.costs, options.solve).points;
  }
  const std::string data = report_json(input);
  write_text(options.out, options.json ? data : report_page(data));
  if (!options.trace.empty()) write_text(options.trace, trace_json(input));
  return kFound;
}

}  // namespace reprise::tools
