// Graph and Costs, and their text.
#include <string>
#include <utility>
#include <vector>

#include "capsule.h"
#include "core.h"
#include "reprise/io.h"
#include "reprise/papers.h"

namespace reprise::bindings {
namespace {

// x.capsule() and X.from_capsule(): shared, not copied.
template <typename T>
void def_capsule(py::class_<T, std::shared_ptr<T>>& type) {
  type.def_static(
          "from_capsule",
          [](const py::capsule& capsule) { return std::const_pointer_cast<T>(from_capsule<T>(capsule)); },
          py::arg("capsule"), "What a capsule holds, shared, not copied.")
      .def(
          "capsule", [](const std::shared_ptr<T>& self) { return to_capsule<T>(std::shared_ptr<const T>(self)); },
          "For another extension module.");
}

OpId checked_op(const Graph& graph, std::size_t op) {
  if (op < graph.num_ops()) return op_id(op);
  throw py::index_error("op " + std::to_string(op) + ": the graph has " + std::to_string(graph.num_ops()) + " ops");
}

ValueId checked_value(const Graph& graph, std::size_t value) {
  if (value < graph.num_values()) return value_id(value);
  throw py::index_error("value " + std::to_string(value) + ": the graph has " + std::to_string(graph.num_values()) +
                        " values");
}

// Values as Python has them: names of enumerators, indices of ops and values, and None if there is none.
const char* to_python(Phase phase) {
  constexpr const char* kNames[] = {"forward", "caller", "backward"};
  return kNames[static_cast<std::size_t>(phase)];
}
const char* to_python(Residence residence) {
  constexpr const char* kNames[] = {"planned", "arriving", "resident"};
  return kNames[static_cast<std::size_t>(residence)];
}
py::object to_python(OpId op) { return id_or_none(op, kNoOp); }
py::object to_python(ValueId value) { return id_or_none(value, kNoValue); }
template <typename Id>
py::list to_python(std::span<const Id> ids) {
  return id_list(ids);
}
template <typename T>
T to_python(const T& value) {
  return value;
}

py::tuple to_pair(CostedGraph both) {
  return py::make_tuple(std::make_shared<Graph>(std::move(both.graph)), std::make_shared<Costs>(std::move(both.costs)));
}

// graph.<name>(op): what the graph says of an op that exists.
template <typename Result>
void def_of_op(GraphClass& graph, const char* name, Result (Graph::*read)(OpId) const, const char* doc) {
  graph.def(
      name, [read](const Graph& g, std::size_t op) { return to_python((g.*read)(checked_op(g, op))); }, py::arg("op"),
      doc);
}
template <typename Result>
void def_of_value(GraphClass& graph, const char* name, Result (Graph::*read)(ValueId) const, const char* doc) {
  graph.def(
      name, [read](const Graph& g, std::size_t value) { return to_python((g.*read)(checked_value(g, value))); },
      py::arg("value"), doc);
}

void bind_ops_and_values(GraphClass& graph) {
  def_of_op(graph, "op_name", &Graph::op_name, "The operator.");
  def_of_op(graph, "scope_name", &Graph::scope_name, "The user's module path, '' if the op has none.");
  def_of_op(graph, "phase", &Graph::phase, "'forward', 'caller' or 'backward'.");
  def_of_op(graph, "once", &Graph::once, "Whether the op must not be repeated.");
  def_of_op(graph, "stream", &Graph::stream, "0: the device's own; above: the communicator's on which the op starts.");
  def_of_op(graph, "partner", &Graph::partner, "The wait of a start, the start of a wait; None for all other ops.");
  def_of_op(graph, "inputs", &Graph::inputs, "The values it reads.");
  def_of_op(graph, "outputs", &Graph::outputs, "The values it makes.");
  def_of_value(graph, "residence", &Graph::residence, "'planned', 'arriving' or 'resident'.");
  def_of_value(graph, "held", &Graph::held, "Whether the caller owns it too.");
  def_of_value(graph, "in_flight", &Graph::in_flight, "Whether a start makes it, so that only its wait reads it.");
  def_of_value(graph, "producer", &Graph::producer, "The op that makes it; None if it is present at the start.");
  def_of_value(graph, "overwrites", &Graph::overwrites, "The value whose memory it may take over, or None.");
  def_of_value(graph, "readers", &Graph::readers, "The ops that read it.");
}

void bind_link(py::module_& module) {
  py::class_<Link>(module, "Link", "The way between the device's memory and the host's. Frozen.")
      .def(py::init([](std::int64_t down, std::int64_t up, std::int64_t latency_ns, bool both_ways) {
             return Link{
                 .down_bytes_per_s = down, .up_bytes_per_s = up, .latency_ns = latency_ns, .both_ways = both_ways};
           }),
           py::arg("down_bytes_per_s"), py::arg("up_bytes_per_s"), py::arg("latency_ns") = Link{}.latency_ns,
           py::arg("both_ways") = true)
      .def_readonly("down_bytes_per_s", &Link::down_bytes_per_s, "To the host.")
      .def_readonly("up_bytes_per_s", &Link::up_bytes_per_s, "Back to the device.")
      .def_readonly("latency_ns", &Link::latency_ns, "What one copy takes in addition.")
      .def_readonly("both_ways", &Link::both_ways, "Whether copies to the host and back can go on at the same time.")
      .def(
          "__eq__", [](const Link& a, const Link& b) { return a == b; }, py::is_operator())
      .attr("__hash__") = py::none();
}

void bind_costs(py::module_& module) {
  using Numbers = std::vector<std::int64_t>;
  CostsClass costs(module, "Costs", "What a graph costs, as lists by op and by value. Frozen.");
  def_capsule(costs);
  costs
      .def(py::init([](Numbers time_ns, Numbers workspace_bytes, Numbers value_bytes, std::optional<Link> link) {
             return std::make_shared<Costs>(Costs{.time_ns = std::move(time_ns),
                                                  .workspace_bytes = std::move(workspace_bytes),
                                                  .value_bytes = std::move(value_bytes),
                                                  .link = link});
           }),
           py::arg("time_ns"), py::arg("workspace_bytes"), py::arg("value_bytes"), py::arg("link") = py::none())
      .def_readonly("time_ns", &Costs::time_ns, "By op: of one run.")
      .def_readonly("workspace_bytes", &Costs::workspace_bytes, "By op: memory needed only while it runs.")
      .def_readonly("value_bytes", &Costs::value_bytes, "By value.")
      .def_readonly("link", &Costs::link, "None: plans cannot store and fetch.")
      .def(
          "__eq__", [](const Costs& a, const Costs& b) { return a == b; }, py::is_operator())
      .attr("__hash__") = py::none();
}

void bind_text(py::module_& module) {
  module.def(
      "parse_graph", [](std::string_view text, std::string_view source) { return to_pair(parse_graph(text, source)); },
      py::arg("text"), py::arg("source") = "graph",
      "Reads graph JSON and returns a graph and its costs; ValueError says what is wrong and where in `source`.");
  module.def("format_graph", &format_graph, py::arg("graph"), py::arg("costs"), "A graph and its costs as JSON.");
  module.def(
      "complete_backward",
      [](const Graph& graph, const Costs& costs) { return to_pair(complete_backward(graph, costs)); }, py::arg("graph"),
      py::arg("costs"), "A forward-only graph with the papers' model of a backward pass added, and its costs.");
}

}  // namespace

void bind_graph(py::module_& module) {
  GraphClass graph(module, "Graph", "One training step, frozen. Ops and values are named by their index.");
  def_capsule(graph);
  graph
      .def(
          "__eq__", [](const Graph& a, const Graph& b) { return a == b; }, py::is_operator())
      .def("__repr__",
           [](const Graph& g) {
             return "<reprise.Graph '" + g.name() + "': " + std::to_string(g.num_ops()) + " ops, " +
                    std::to_string(g.num_values()) + " values>";
           })
      .def_property_readonly("name", &Graph::name)
      .def_property_readonly("num_ops", &Graph::num_ops)
      .def_property_readonly("num_values", &Graph::num_values)
      .def_property_readonly("num_communicators", &Graph::num_communicators)
      .def_property_readonly("forward_only", &Graph::forward_only)
      .def_property_readonly(
          "caller_op", [](const Graph& g) { return id_or_none(g.caller_op(), kNoOp); },
          "The op between forward and backward; None in a forward-only graph.")
      .def_property_readonly(
          "step_outputs", [](const Graph& g) { return id_list(g.step_outputs()); },
          "Values that must be live at the end.");
  graph.attr("__hash__") = py::none();
  bind_ops_and_values(graph);
  bind_link(module);
  bind_costs(module);
  bind_text(module);
}

}  // namespace reprise::bindings
