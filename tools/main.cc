// The `reprise` command.
#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>
#include <new>

#include "commands.h"
#include "reprise/error.h"

namespace reprise::tools {
namespace {

constexpr const char* kFooter =
    "Sizes are bytes, or 6GiB, 500MB, 1.5GB. A file named - is the standard input or output.\n"
    "Exit codes: 0 found, 1 infeasible, 2 wrong usage, 3 bad input, 4 stopped early.\n\n"
    "Examples:\n"
    "  reprise info step.graph.json\n"
    "  reprise curve step.graph.json\n"
    "  reprise plan step.graph.json --budget 6GiB -o step.plan.json\n"
    "  reprise simulate step.graph.json step.plan.json\n"
    "  reprise report step.plan.json -o step.html";

struct Command {
  const char* name;
  const char* what;
  const char* more;
  void (*add_options)(CLI::App&, Options&);
  int (*run)(Options&);
};

constexpr Command kCommands[] = {
    {"plan", "Plan a training step inside a byte budget",
     "Every plan is checked and simulated before it is shown; judged by simulation, its peak is within the budget.\n"
     "With -o - the plan goes to the standard output and the table to the standard error.\n"
     "Example: reprise plan step.graph.json --budget 6GiB -o step.plan.json",
     add_plan_options, run_plan},
    {"simulate", "Check a plan; show its peak and what holds the memory there",
     "Example: reprise simulate step.graph.json step.plan.json --top 20", add_simulate_options, run_simulate},
    {"curve", "Show time against memory: the best plans over all budgets",
     "Each row is a plan with its budget and its time. Between two rows, more memory does not save time.\n"
     "Example: reprise curve step.graph.json",
     add_curve_options, run_curve},
    {"convert", "Turn a graph into graph JSON, equal graphs into equal files",
     "Reads graph JSON, or the text format of Kusumoto et al.'s program (NeurIPS 2019).\n"
     "Example: reprise convert cg_resnet50.txt resnet50.graph.json",
     add_convert_options, run_convert},
    {"info", "Show what is in a graph, and its peak when nothing is recomputed",
     "Example: reprise info step.graph.json", add_info_options, run_info},
    {"report", "Show a plan as a page: memory over the step, what is kept and computed again",
     "One HTML file that loads nothing. Example: reprise report step.plan.json -o step.html --trace step.trace.json",
     add_report_options, run_report},
};

int run(int argc, char** argv) {
  CLI::App app("Plans which results of a training step to keep and which to compute again, inside a byte budget.");
  app.name("reprise")->footer(kFooter);
  app.set_version_flag("--version", "reprise " REPRISE_VERSION);
  Options options;
  for (const Command& command : kCommands) {
    CLI::App* subcommand = app.add_subcommand(command.name, command.what)->footer(command.more);
    command.add_options(*subcommand, options);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error, std::cout, std::cerr) == 0 ? kFound : kUsage;
  }
  for (const Command& command : kCommands) {
    if (app.got_subcommand(command.name)) return command.run(options);
  }
  complain("which command? reprise --help lists them");
  return kUsage;
}

}  // namespace
}  // namespace reprise::tools

int main(int argc, char** argv) {
  using namespace reprise;
  try {
    return tools::run(argc, argv);
  } catch (const InputError& error) {
    tools::complain(error.what());
    return tools::kBadInput;
  } catch (const std::bad_alloc&) {
    tools::complain("out of memory");
    return tools::kStopped;
  } catch (const std::exception& error) {
    tools::complain(std::string("a bug in reprise, please report it: ") + error.what());
    return tools::kOurBug;
  }
}
