// Plan, its text, and what the library says about any plan.
#include <string>
#include <utility>
#include <vector>

#include "capsule.h"
#include "core.h"
#include "reprise/error.h"
#include "reprise/io.h"
#include "reprise/lives.h"
#include "reprise/plan.h"
#include "reprise/simulate.h"
#include "reprise/validate.h"

namespace reprise::bindings {
namespace {

using Pair = std::pair<Action::Kind, std::uint32_t>;  // and op or value

Pair to_pair(Action action) {
  return {action.kind(), static_cast<std::uint32_t>(action.computes() ? index(action.op()) : index(action.value()))};
}

Action from_pair(const Pair& pair) {
  switch (pair.first) {
    case Action::Kind::kCompute:
      return Action::compute(op_id(pair.second));
    case Action::Kind::kComputeInPlace:
      return Action::compute(op_id(pair.second), true);
    case Action::Kind::kFree:
      return Action::free(value_id(pair.second));
    case Action::Kind::kStore:
      return Action::store(value_id(pair.second));
    case Action::Kind::kFetch:
      return Action::fetch(value_id(pair.second));
  }
  throw InternalError("an action of an unknown kind");
}

Plan plan_of(const std::vector<Pair>& pairs) {
  Plan plan;
  for (const Pair& pair : pairs) plan.actions.push_back(from_pair(pair));
  return plan;
}

std::vector<Pair> pairs_of(const Plan& plan) {
  std::vector<Pair> pairs;
  pairs.reserve(plan.actions.size());
  for (const Action action : plan.actions) pairs.push_back(to_pair(action));
  return pairs;
}

// simulate() requires a legal plan, but Python may pass any.
void check_legal(const Graph& graph, const Plan& plan) {
  if (const auto violation = validate(graph, plan)) throw InputError(violation->message);
}

void bind_actions(py::module_& module) {
  py::enum_<Action::Kind>(module, "ActionKind", "What an action of a plan does.")
      .value("COMPUTE", Action::Kind::kCompute)
      .value("COMPUTE_IN_PLACE", Action::Kind::kComputeInPlace)
      .value("FREE", Action::Kind::kFree)
      .value("STORE", Action::Kind::kStore)
      .value("FETCH", Action::Kind::kFetch);
  py::class_<Plan>(module, "Plan", "What to run and what to free, in order. Frozen.")
      .def(py::init(&plan_of), py::arg("actions"), "From pairs (kind, op or value).")
      .def_static(
          "from_capsule", [](const py::capsule& capsule) { return *from_capsule<Plan>(capsule); }, py::arg("capsule"),
          "The plan of a capsule.")
      .def(
          "capsule", [](const Plan& plan) { return to_capsule(plan); }, "The plan for another extension module.")
      .def_property_readonly("actions", &pairs_of, "Pairs (kind, op or value).")
      .def("__len__", [](const Plan& plan) { return plan.actions.size(); })
      .def(
          "__eq__", [](const Plan& a, const Plan& b) { return a == b; }, py::is_operator())
      .def("__repr__",
           [](const Plan& plan) { return "<reprise.Plan: " + std::to_string(plan.actions.size()) + " actions>"; })
      .attr("__hash__") = py::none();
}

void bind_plan_file(py::module_& module) {
  py::class_<PlanFile>(module, "PlanFile", "A plan with what it was made for, as plan JSON holds it.")
      .def(py::init([](const Graph& graph, const Costs& costs, const Plan& plan, std::string planner,
                       std::int64_t budget_bytes) {
             check_legal(graph, plan);
             return PlanFile{.graph = graph.name(),
                             .ops = graph.num_ops(),
                             .values = graph.num_values(),
                             .planner = std::move(planner),
                             .budget_bytes = budget_bytes,
                             .simulation = simulate(graph, costs, plan),
                             .plan = plan,
                             .link = copies(plan) ? costs.link : std::nullopt};
           }),
           py::arg("graph"), py::arg("costs"), py::arg("plan"), py::kw_only(), py::arg("planner") = "",
           py::arg("budget_bytes") = 0, "Makes one from a legal plan; ValueError for any other.")
      .def_static("parse", &parse_plan, py::arg("text"), py::arg("source") = "plan",
                  "Reads plan JSON; ValueError says what is wrong and where in `source`.")
      .def("format", &format_plan, "The plan as JSON.")
      .def(
          "__eq__", [](const PlanFile& a, const PlanFile& b) { return a == b; }, py::is_operator())
      .def_readonly("graph", &PlanFile::graph, "Name of the graph.")
      .def_readonly("num_ops", &PlanFile::ops)
      .def_readonly("num_values", &PlanFile::values)
      .def_readonly("planner", &PlanFile::planner)
      .def_readonly("budget_bytes", &PlanFile::budget_bytes, "0: none was given.")
      .def_readonly("simulation", &PlanFile::simulation)
      .def_readonly("plan", &PlanFile::plan)
      .attr("__hash__") = py::none();
}

void bind_lives(py::module_& module) {
  py::class_<Life>(module, "Life", "From when to when one copy of a value exists.")
      .def_property_readonly("value", [](const Life& life) { return index(life.value); })
      .def_readonly("first", &Life::first, "The action that makes it; None: it is present at the start.")
      .def_readonly("last", &Life::last, "The action that frees it or writes over it; None: it is present at the end.")
      .def_property_readonly(
          "took_over", [](const Life& life) { return id_or_none(life.took_over, kNoValue); },
          "The value whose memory it was written into, or None.")
      .def_readonly("second_copy", &Life::second_copy, "Made while the value was already live: dropped at once.");
  module.def(
      "lives",
      [](const Graph& graph, const Plan& plan) {
        check_legal(graph, plan);
        return lives(graph, plan);
      },
      py::arg("graph"), py::arg("plan"),
      "Every copy of every value under a legal plan: those present at the start, then the others in the order in which "
      "they begin.");
}

void bind_simulation(py::module_& module) {
  py::class_<Simulation>(module, "Simulation", "Memory and time of a plan.")
      .def_readonly("peak_bytes", &Simulation::peak_bytes)
      .def_readonly("time_ns", &Simulation::time_ns)
      .def_readonly("recompute_ns", &Simulation::recompute_ns, "The part of time_ns spent in runs after an op's first.")
      .def_readonly("wait_ns", &Simulation::wait_ns, "The part of time_ns in which the device waits for copies.")
      .def_readonly("host_peak_bytes", &Simulation::host_peak_bytes)
      .def_readonly("exposed_ns", &Simulation::exposed_ns,
                    "The part of time_ns in which the device waits for communicators.")
      .def(
          "__eq__", [](const Simulation& a, const Simulation& b) { return a == b; }, py::is_operator())
      .def("__repr__",
           [](const Simulation& s) {
             return "<reprise.Simulation: peak_bytes=" + std::to_string(s.peak_bytes) +
                    ", time_ns=" + std::to_string(s.time_ns) + ", recompute_ns=" + std::to_string(s.recompute_ns) + ">";
           })
      .attr("__hash__") = py::none();
  py::class_<Timeline>(module, "Timeline", "Memory of a plan, action by action.")
      .def_readonly("total", &Timeline::total)
      .def_readonly("start_bytes", &Timeline::start_bytes, "Resident and arriving values.")
      .def_readonly("during_bytes", &Timeline::during_bytes, "Per action, at its highest instant.")
      .def_readonly("after_bytes", &Timeline::after_bytes, "Per action.")
      .def_readonly("begin_ns", &Timeline::begin_ns,
                    "Per action: when its run, on the device or a communicator, or its copy begins.")
      .def_readonly("end_ns", &Timeline::end_ns, "Per action: when its run or its copy ends.")
      .def_readonly("peak_action", &Timeline::peak_action, "The first action that reaches the peak.")
      .def_property_readonly(
          "live_at_peak", [](const Timeline& t) { return id_list<ValueId>(t.live_at_peak); },
          "Values held at that instant, largest first.");
}

}  // namespace

void bind_plan(py::module_& module) {
  bind_simulation(module);
  bind_actions(module);
  bind_plan_file(module);
  bind_lives(module);
  module.def(
      "validate",
      [](const Graph& graph, const Plan& plan) -> std::optional<std::string> {
        const auto violation = validate(graph, plan);
        return violation ? std::optional(violation->message) : std::nullopt;
      },
      py::arg("graph"), py::arg("plan"), "The first rule that the plan breaks, or None.");
  module.def(
      "simulate",
      [](const Graph& graph, const Costs& costs, const Plan& plan) {
        check_legal(graph, plan);
        return simulate(graph, costs, plan);
      },
      py::arg("graph"), py::arg("costs"), py::arg("plan"),
      "Memory and time of a legal plan; ValueError for any other.");
  module.def("most_of_one_op", &most_of_one_op, py::arg("graph"), py::arg("costs"),
             "No plan takes less: the bytes of the op that needs most, and of resident values.");
  module.def(
      "timeline",
      [](const Graph& graph, const Costs& costs, const Plan& plan) {
        check_legal(graph, plan);
        return timeline(graph, costs, plan);
      },
      py::arg("graph"), py::arg("costs"), py::arg("plan"),
      "Memory of a legal plan, action by action; ValueError for any other.");
}

}  // namespace reprise::bindings
