// Graph, and how it crosses from one extension module to another.
//
// A capsule named "reprise.Graph" holds a std::shared_ptr<const Graph>*, which it owns. So a module built with another
// pybind11 can hand over a graph without copying it.
#include <string>

#include "core.h"
#include "reprise/io.h"

namespace reprise::bindings {
namespace {

using SharedGraph = std::shared_ptr<const Graph>;
constexpr const char* kCapsuleName = "reprise.Graph";

OpId checked_op(const Graph& graph, std::size_t op) {
  if (op < graph.num_ops()) return op_id(op);
  throw py::index_error("op " + std::to_string(op) + ": the graph has " + std::to_string(graph.num_ops()) + " ops");
}

ValueId checked_value(const Graph& graph, std::size_t value) {
  if (value < graph.num_values()) return value_id(value);
  throw py::index_error("value " + std::to_string(value) + ": the graph has " + std::to_string(graph.num_values()) +
                        " values");
}

const char* phase_name(Phase phase) {
  constexpr const char* kNames[] = {"forward", "caller", "backward"};
  return kNames[static_cast<std::size_t>(phase)];
}

const char* residence_name(Residence residence) {
  constexpr const char* kNames[] = {"planned", "arriving", "resident"};
  return kNames[static_cast<std::size_t>(residence)];
}

template <typename Id>
py::object id_or_none(Id id, Id none) {
  if (id == none) return py::none();
  return py::int_(index(id));
}

py::capsule to_capsule(const std::shared_ptr<Graph>& graph) {
  auto owned = std::make_unique<SharedGraph>(graph);
  py::capsule capsule(owned.get(), kCapsuleName, [](PyObject* object) {
    delete static_cast<SharedGraph*>(PyCapsule_GetPointer(object, kCapsuleName));
  });
  static_cast<void>(owned.release());  // the capsule has it now
  return capsule;
}

std::shared_ptr<Graph> from_capsule(const py::capsule& capsule) {
  if (!PyCapsule_IsValid(capsule.ptr(), kCapsuleName)) {
    throw py::value_error(std::string("not a capsule named '") + kCapsuleName + "'");
  }
  return std::const_pointer_cast<Graph>(*capsule.get_pointer<SharedGraph>());
}

// graph.<name>(op): what `read` says of an op that exists.
template <typename Read>
void def_of_op(GraphClass& graph, const char* name, Read read, const char* doc) {
  graph.def(
      name, [read](const Graph& g, std::size_t op) { return read(g, checked_op(g, op)); }, py::arg("op"), doc);
}

template <typename Read>
void def_of_value(GraphClass& graph, const char* name, Read read, const char* doc) {
  graph.def(
      name, [read](const Graph& g, std::size_t value) { return read(g, checked_value(g, value)); }, py::arg("value"),
      doc);
}

void bind_ops(GraphClass& graph) {
  def_of_op(
      graph, "op_name", [](const Graph& g, OpId op) { return g.op_name(op); }, "The operator.");
  def_of_op(
      graph, "scope_name", [](const Graph& g, OpId op) { return g.scope_name(op); },
      "The user's module path, '' where the op has none.");
  def_of_op(
      graph, "phase", [](const Graph& g, OpId op) { return phase_name(g.phase(op)); },
      "'forward', 'caller' or 'backward'.");
  def_of_op(
      graph, "time_ns", [](const Graph& g, OpId op) { return g.time_ns(op); }, "Time of one run.");
  def_of_op(
      graph, "workspace_bytes", [](const Graph& g, OpId op) { return g.workspace_bytes(op); },
      "Memory needed only while the op runs.");
  def_of_op(
      graph, "once", [](const Graph& g, OpId op) { return g.once(op); }, "Whether the op must not be repeated.");
  def_of_op(
      graph, "inputs", [](const Graph& g, OpId op) { return id_list(g.inputs(op)); }, "The values it reads.");
  def_of_op(
      graph, "outputs", [](const Graph& g, OpId op) { return id_list(g.outputs(op)); }, "The values it makes.");
}

void bind_values(GraphClass& graph) {
  def_of_value(
      graph, "bytes", [](const Graph& g, ValueId v) { return g.bytes(v); }, "Its size.");
  def_of_value(
      graph, "residence", [](const Graph& g, ValueId v) { return residence_name(g.residence(v)); },
      "'planned', 'arriving' or 'resident'.");
  def_of_value(
      graph, "held", [](const Graph& g, ValueId v) { return g.held(v); }, "Whether the caller owns it too.");
  def_of_value(
      graph, "producer", [](const Graph& g, ValueId v) { return id_or_none(g.producer(v), kNoOp); },
      "The op that makes it; None where it is there at the start.");
  def_of_value(
      graph, "overwrites", [](const Graph& g, ValueId v) { return id_or_none(g.overwrites(v), kNoValue); },
      "The value whose memory it may take over, or None.");
  def_of_value(
      graph, "readers", [](const Graph& g, ValueId v) { return id_list(g.readers(v)); }, "The ops that read it.");
}

}  // namespace

void bind_graph(py::module_& module) {
  GraphClass graph(module, "Graph", "One training step, frozen. Ops and values are named by their index.");
  graph
      .def_static(
          "parse",
          [](std::string_view text, std::string_view source) {
            return std::make_shared<Graph>(parse_graph(text, source));
          },
          py::arg("text"), py::arg("source") = "graph",
          "Reads graph JSON; ValueError says what is wrong and where in `source`.")
      .def_static("from_capsule", &from_capsule, py::arg("capsule"), "The graph of a capsule, shared, not copied.")
      .def("capsule", &to_capsule, "The graph for another extension module.")
      .def("format", &format_graph, "The graph as JSON.")
      .def(
          "complete_backward", [](const Graph& g) { return std::make_shared<Graph>(complete_backward(g)); },
          "A forward-only graph with the papers' model of a backward pass added.")
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
      .def_property_readonly("forward_only", &Graph::forward_only)
      .def_property_readonly(
          "caller_op", [](const Graph& g) { return id_or_none(g.caller_op(), kNoOp); },
          "The op between forward and backward; None in a forward-only graph.")
      .def_property_readonly(
          "step_outputs", [](const Graph& g) { return id_list(g.step_outputs()); },
          "Values that must be live at the end.");
  graph.attr("__hash__") = py::none();
  bind_ops(graph);
  bind_values(graph);
}

}  // namespace reprise::bindings
