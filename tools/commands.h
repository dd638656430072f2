// The subcommands, and everything that can be asked of them.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "report.h"
#include "reprise/costs.h"
#include "reprise/graph.h"
#include "reprise/io.h"
#include "reprise/place.h"
#include "reprise/solve.h"
#include "solve/planner_knobs.h"

namespace CLI {
class App;
}

namespace reprise::tools {

enum ExitCode : int { kFound = 0, kInfeasible = 1, kUsage = 2, kBadInput = 3, kStopped = 4, kOurBug = 70 };

struct Options {
  std::string graph{};
  std::string plan{};          // simulate reads it, plan writes it
  std::string out = "-";       // convert, report
  std::string from{};          // convert; empty: look at the text
  bool complete = false;       // convert
  std::size_t top = 10;        // simulate
  std::string trace{};         // report: also write this
  bool no_curve = false;       // report
  std::optional<Link> link{};  // plan, curve
  double seconds = 0;          // plan, curve, report; 0: no limit
  bool json = false;
  std::shared_ptr<PlannerKnobs> knobs = std::make_shared<PlannerKnobs>();
  SolveOptions solve{.knobs = knobs};  // plan, curve; simulate: addresses
};

void add_plan_options(CLI::App& app, Options& options);
void add_simulate_options(CLI::App& app, Options& options);
void add_curve_options(CLI::App& app, Options& options);
void add_convert_options(CLI::App& app, Options& options);
void add_info_options(CLI::App& app, Options& options);
void add_report_options(CLI::App& app, Options& options);

// Each returns the exit code.
[[nodiscard]] int run_plan(Options& options);
[[nodiscard]] int run_plan_all(Options& options);  // --planner all
[[nodiscard]] int run_simulate(Options& options);
[[nodiscard]] int run_curve(Options& options);
[[nodiscard]] int run_convert(Options& options);
[[nodiscard]] int run_info(Options& options);
[[nodiscard]] int run_report(Options& options);

// What several of them need.
[[nodiscard]] std::string source_name(const std::string& path);  // of a file, for messages
[[nodiscard]] CostedGraph load_graph(const std::string& path);
[[nodiscard]] CostedGraph load_graph_with_link(const Options& options);
// The graph that plans are for: with the papers' backward pass if it has none of its own.
[[nodiscard]] CostedGraph planned_graph(const CostedGraph& file);
// The plan in a file, checked against its graph, whose costs get the link of the plan. Throws InputError if the plan is
// for another graph, is illegal, does not cost what it says, or has wrong addresses.
[[nodiscard]] PlanFile load_plan(const std::string& path, CostedGraph& step);
[[nodiscard]] Report graph_report(const Graph& graph);
[[nodiscard]] std::string status_name(Status status);
// The time of the step without recomputation and waiting.
[[nodiscard]] std::int64_t step_ns(const Simulation& found);
// Recomputation and waiting, in percent of that.
[[nodiscard]] std::string overhead_text(const Simulation& found);
// A stopped planner may have a plan too.
[[nodiscard]] bool has_plan(const Solution& solution);
// Arena and load, if there are addresses.
void add_placement(const std::optional<Placement>& placement, Report& report);
// How long the device waits for communicators, if there are any.
void add_exposed(const Simulation& found, const Graph& graph, Report& report);
// What is stored in the host's memory, and how long the device waits for it.
void add_copies(const Solution& solution, const Graph& graph, Report& report);
// Peak, time and the rest, added to the report.
void add_solution(const Solution& solution, const Graph& graph, Report& report);
[[nodiscard]] std::string text_of(const Report& report, const Options& options);
void complain(const std::string& text);  // on the standard error

}  // namespace reprise::tools
