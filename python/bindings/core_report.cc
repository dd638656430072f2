// The report: a plan for people.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core.h"
#include "reprise/error.h"
#include "reprise/report.h"
#include "reprise/validate.h"

namespace reprise::bindings {
namespace {

using Measured = std::optional<std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>>;

// What report_json and trace_json have in common: `write` gets the input.
template <typename Write>
void bind_writer(py::module_& module, const char* name, Write write, const char* doc) {
  module.def(
      name,
      [write](const Graph& graph, const Costs& costs, const Plan& plan, std::string planner, std::int64_t budget_bytes,
              std::int64_t outside_bytes, const Measured& measured, const std::vector<Solution>& curve,
              const std::map<std::string, std::string>& facts) {
        if (const auto violation = validate(graph, plan)) throw InputError(violation->message);
        ReportInput input{.graph = graph,
                          .costs = costs,
                          .plan = plan,
                          .planner = std::move(planner),
                          .budget_bytes = budget_bytes,
                          .outside_bytes = outside_bytes,
                          .curve = curve,
                          .facts = {facts.begin(), facts.end()}};
        if (measured) input.measured = MeasuredStep{.during_bytes = measured->first, .after_bytes = measured->second};
        const py::gil_scoped_release unlocked;
        return write(input);
      },
      py::arg("graph"), py::arg("costs"), py::arg("plan"), py::kw_only(), py::arg("planner") = "",
      py::arg("budget_bytes") = 0, py::arg("outside_bytes") = 0, py::arg("measured") = py::none(),
      py::arg("curve") = py::list(), py::arg("facts") = py::dict(), doc);
}

}  // namespace

void bind_report(py::module_& module) {
  bind_writer(
      module, "report_json", [](const ReportInput& input) { return report_json(input); },
      "The report's data (docs/report.md). budget_bytes: of everything on the device, 0 for none; outside_bytes: on\n"
      "the device beside the step; measured: bytes while and after every action of the plan; curve: points of "
      "curve().");
  bind_writer(
      module, "trace_json", [](const ReportInput& input) { return trace_json(input); },
      "The planned step for Perfetto and chrome://tracing.");
  module.def("report_page", &report_page, py::arg("json"), "One HTML file that shows what report_json() gave.");
}

}  // namespace reprise::bindings
