// The options of each subcommand.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "commands.h"
#include "reprise/error.h"
#include "reprise/io.h"

namespace reprise::tools {
namespace {

void add_graph(CLI::App& app, Options& options) {
  app.add_option("GRAPH", options.graph, "a *.graph.json file")->required()->type_name("");
  app.add_flag("--json", options.json, "print one JSON object, for programs");
}

// An option that takes one of `names`.
CLI::Option* limit(CLI::Option* option, const std::vector<std::string>& names) {
  return option->check(CLI::IsMember(names).description(""))->type_name(CLI::detail::join(names, "|"));
}

template <typename Enum>
void add_choice(CLI::App& app, const char* flag, const std::map<std::string, Enum>& choices, Enum& into,
                const char* help) {
  std::vector<std::string> names;
  std::ranges::transform(choices, std::back_inserter(names), [](const auto& choice) { return choice.first; });
  const auto assign = [choices, &into](const std::string& name) { into = choices.at(name); };
  limit(app.add_option_function<std::string>(flag, assign, help), names);
}

// --without: what planner auto may not use.
void add_techniques(CLI::App& app, AutoTechniques& techniques) {
  const std::map<std::string, bool AutoTechniques::*> known{{"cuts", &AutoTechniques::cuts},
                                                            {"prefix-cuts", &AutoTechniques::prefix_cuts},
                                                            {"nesting", &AutoTechniques::nesting},
                                                            {"aimed-prices", &AutoTechniques::aimed_prices},
                                                            {"planners", &AutoTechniques::planners},
                                                            {"courses", &AutoTechniques::courses},
                                                            {"local-search", &AutoTechniques::local_search},
                                                            {"incremental", &AutoTechniques::incremental},
                                                            {"reordering", &AutoTechniques::reordering},
                                                            {"bound", &AutoTechniques::bound}};
  std::vector<std::string> names;
  std::ranges::transform(known, std::back_inserter(names), [](const auto& entry) { return entry.first; });
  const auto assign = [known, &techniques](const std::vector<std::string>& without) {
    for (const std::string& name : without) techniques.*known.at(name) = false;
  };
  limit(app.add_option_function<std::vector<std::string>>("--without", assign, "planner auto: leave a technique out"),
        names);
}

void add_planner(CLI::App& app, Options& options, const std::vector<std::string>& more_names) {
  const auto known = planner_names();
  std::vector<std::string> names(known.begin(), known.end());
  names.insert(names.end(), more_names.begin(), more_names.end());
  limit(app.add_option("--planner", options.solve.planner, "how to plan"), names)->capture_default_str();
  add_choice<Objective>(
      app, "--objective",
      {{"time", Objective::kTime}, {"max-overhead", Objective::kMaxOverhead}, {"min-cache", Objective::kMinCache}},
      options.solve.objective, "what a lower-set planner asks of a sequence of blocks; if not given, all are tried");
  app.add_option("--max-lower-sets", options.knobs->max_lower_sets, "planner lower-sets: give up above this many")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--work", options.solve.work,
                 "planner auto: search this long, counted in reads of values; the same on every machine")
      ->type_name("N")
      ->capture_default_str();
  add_techniques(app, options.knobs->techniques);
  app.add_flag_callback(
      "--as-published", [&options] { options.knobs->online = {.ghosts_first = false, .oldest_first = false}; },
      "planner online: without what was added to the published method");
  app.add_option("--seconds", options.seconds, "stop after this long with the best so far")
      ->check(CLI::Range(0.001, 1e9).description(""))
      ->type_name("S");
}

void add_addresses(CLI::App& app, Options& options, const char* help) {
  const auto assign = [&options](const std::string& where) {
    options.solve.addresses.emplace().outliving_on_top = where == "top";
  };
  limit(app.add_option_function<std::string>("--addresses", assign, help), {"top", "anywhere"});
}

std::int64_t bytes_of(const char* flag, const std::string& text) {
  try {
    return parse_bytes(text);
  } catch (const InputError& error) {
    throw CLI::ValidationError(flag, error.what());
  }
}

void set_budget(const std::string& text, Options& options) {
  if (text != "min") options.solve.budget_bytes = bytes_of("--budget", text);
}

// "50GB/s", or "50GB/s,40GB/s" to the host and back.
void set_link(const std::string& text, Options& options) {
  const auto rate = [](std::string part) {
    if (part.ends_with("/s")) part.resize(part.size() - 2);
    const std::int64_t bytes = bytes_of("--link", part);
    if (bytes <= 0) throw CLI::ValidationError("--link", "must be above zero");
    return bytes;
  };
  const std::size_t comma = text.find(',');
  const std::int64_t down = rate(text.substr(0, comma));
  options.link = {.down_bytes_per_s = down,
                  .up_bytes_per_s = comma == std::string::npos ? down : rate(text.substr(comma + 1))};
}

void add_host(CLI::App& app, Options& options) {
  const auto set_host = [&options](const std::string& text) {
    options.solve.host_budget_bytes = bytes_of("--host-budget", text);
  };
  CLI::Option* host = app.add_option_function<std::string>(
      "--host-budget", set_host, "how much of the host's memory may store values that the device has no room for");
  CLI::Option* link = app.add_option_function<std::string>(
      "--link", [&options](const std::string& text) { set_link(text, options); },
      "bytes per second to the host and back: one number, or two with a comma between them");
  host->type_name("BYTES")->needs(link);
  link->type_name("RATE[,RATE]")->needs(host);
}

}  // namespace

void add_plan_options(CLI::App& app, Options& options) {
  add_graph(app, options);
  app.add_option_function<std::string>(
         "--budget", [&options](const std::string& text) { set_budget(text, options); },
         "the most memory the step may hold; min asks for the least that works")
      ->required()
      ->type_name("BYTES|min");
  add_host(app, options);
  add_planner(app, options, {"all"});
  app.callback([&options] {
    if (options.solve.planner != "all") return;
    if (!options.plan.empty()) throw CLI::ValidationError("--output", "takes one plan; choose one planner");
    if (options.solve.addresses) throw CLI::ValidationError("--addresses", "are of one plan; choose one planner");
  });
  add_choice<Judge>(app, "--judge", {{"simulated", Judge::kSimulated}, {"formula", Judge::kFormula}},
                    options.solve.judge, "compare the budget with the true peak (default) or the papers' formula");
  app.add_flag("--keep-last", options.solve.keep_last, "judge formula: keep the last block instead of recomputing it");
  app.add_option("-o,--output", options.plan, "write the plan here")->type_name("PLAN");
  add_addresses(app, options, "also place everything in one arena, with what outlives the step at its top or anywhere");
  app.add_flag("--arena-within-budget", options.solve.arena_within_budget,
               "with --addresses: take a plan whose arena fits the budget too, with what lies outside it")
      ->needs("--addresses");
}

void add_simulate_options(CLI::App& app, Options& options) {
  add_graph(app, options);
  app.add_option("PLAN", options.plan, "a *.plan.json file made for that graph")->required()->type_name("");
  app.callback([&options] {
    if (options.graph == "-" && options.plan == "-") throw CLI::ValidationError("PLAN", "- is read as GRAPH already");
  });
  add_addresses(app, options, "place everything in one arena anew, with what outlives the step at its top or anywhere");
  app.add_option("--top", options.top, "how many of the values live at the peak to show")
      ->capture_default_str()
      ->type_name("N");
}

void add_curve_options(CLI::App& app, Options& options) {
  add_graph(app, options);
  add_host(app, options);
  add_planner(app, options, {});
}

void add_convert_options(CLI::App& app, Options& options) {
  app.add_option("IN", options.graph, "the graph to read")->required()->type_name("");
  app.add_option("OUT", options.out, "the *.graph.json file to write")->capture_default_str()->type_name("");
  limit(app.add_option("--from", options.from, "the format of IN; if not given, it is recognised from the text"),
        {"graph-json", "authors-text", "dtr-log"});
  app.add_flag("--complete", options.complete, "add the papers' model of backward to a forward-only graph");
}

void add_info_options(CLI::App& app, Options& options) { add_graph(app, options); }

void add_report_options(CLI::App& app, Options& options) {
  app.add_option("PLAN", options.plan, "a *.plan.json file")->required()->type_name("");
  app.add_option("--graph", options.graph, "the plan's graph; net.plan.json is for net.graph.json beside it")
      ->type_name("GRAPH");
  app.add_option("-o,--output", options.out, "write the page here")->capture_default_str()->type_name("HTML");
  app.add_option("--trace", options.trace, "also write the step for Perfetto and chrome://tracing")->type_name("TRACE");
  app.add_flag("--json", options.json, "write the page's data instead of the page");
  app.add_flag("--no-curve", options.no_curve,
               "leave out the curve of time against memory, which needs planning at all budgets");
  app.add_option("--seconds", options.seconds, "stop planning for the curve after this long, with the best so far")
      ->check(CLI::Range(0.001, 1e9).description(""))
      ->type_name("S");
}

}  // namespace reprise::tools
