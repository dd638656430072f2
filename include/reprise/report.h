// A plan for people: what it keeps, what it computes again, and what that saves and costs (docs/report.md).
//
//   const ReportInput input{.graph = graph, .costs = costs, .plan = file.plan, .planner = file.planner};
//   write_text("plan.html", report_page(report_json(input)));
//
// REQUIRES: validate(input.graph, input.plan) found nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reprise/costs.h"
#include "reprise/graph.h"
#include "reprise/place.h"
#include "reprise/plan.h"
#include "reprise/solve.h"

namespace reprise {

// What an allocator counted at every action of the plan, including `outside_bytes`, as in the report.
struct MeasuredStep {
  std::vector<std::int64_t> during_bytes{};  // highest while the action ran
  std::vector<std::int64_t> after_bytes{};
};

struct ReportInput {
  const Graph& graph;
  const Costs& costs;
  const Plan& plan;
  std::string planner{};
  std::int64_t budget_bytes = 0;   // for everything on the device; 0: no budget
  std::int64_t outside_bytes = 0;  // on the device, but not part of the step: added to every amount shown
  bool time_in_units = false;      // times are counts of the papers' kind, not nanoseconds
  std::optional<MeasuredStep> measured{};
  std::optional<Placement> placement{};                      // of this plan. REQUIRES: validate_addresses found nothing
  std::vector<Solution> curve{};                             // of this graph, smallest peak first; empty: not known
  std::vector<std::pair<std::string, std::string>> facts{};  // shown at the top: device, versions
};

// The report's data. Throws InputError if the graph is forward-only, `measured` does not belong to this plan, or a name
// is not UTF-8.
[[nodiscard]] std::string report_json(const ReportInput& input);

// One HTML file that shows such data and loads nothing else. Equal data gives equal bytes.
[[nodiscard]] std::string report_page(std::string_view json);

// The planned step for Perfetto and chrome://tracing: every run on its phase's track, and memory as counters.
// Throws InputError if `measured` does not belong to this plan, or a name is not UTF-8.
[[nodiscard]] std::string trace_json(const ReportInput& input);

}  // namespace reprise
