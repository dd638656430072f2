#include <torch/csrc/jit/python/pybind_utils.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "reprise/error.h"
#include "runtime/program/operator_facts.h"
#include "runtime/program/program_queries.h"
#include "runtime/program/tensor_memory.h"
#include "torch_parts.h"

namespace reprise::bindings {
namespace {

using Uses = std::vector<std::optional<TensorUse>>;

// A tensor argument by the type its schema gives, anything else as TorchScript converts it.
Argument argument_from(const py::handle& object, const c10::Argument& schema) {
  const auto use_of = [](const py::handle& item) -> std::optional<TensorUse> {
    if (item.is_none()) return std::nullopt;
    return item.cast<TensorUse>();
  };
  c10::TypePtr type = schema.type();
  if (const auto optional = type->cast<c10::OptionalType>(); optional && !object.is_none()) {
    type = optional->getElementType();
  }
  if (py::isinstance<TensorUse>(object)) return {.kind = Argument::Kind::kTensor, .tensors = {use_of(object)}};
  const auto list = type->cast<c10::ListType>();
  if (list != nullptr && py::isinstance<py::sequence>(object) && !py::isinstance<py::str>(object)) {
    const bool optional = list->getElementType()->kind() == c10::TypeKind::OptionalType;
    if (optional || list->getElementType()->kind() == c10::TypeKind::TensorType) {
      Argument result{.kind = optional ? Argument::Kind::kOptionalTensorList : Argument::Kind::kTensorList};
      for (const py::handle item : object) result.tensors.push_back(use_of(item));
      return result;
    }
  }
  if (type->kind() == c10::TypeKind::TensorType) {  // a number in the place of a tensor
    if (py::isinstance<py::float_>(object)) return {.constant = wrapped_number(object.cast<double>())};
    if (py::isinstance<py::bool_>(object)) return {.constant = wrapped_number(object.cast<bool>())};
    if (py::isinstance<py::int_>(object)) return {.constant = wrapped_number(object.cast<std::int64_t>())};
    if (PyComplex_Check(object.ptr())) {
      return {.constant = wrapped_number(
                  c10::complex<double>(PyComplex_RealAsDouble(object.ptr()), PyComplex_ImagAsDouble(object.ptr())))};
    }
  }
  return {.constant = torch::jit::toIValue(object, schema.type())};
}

// (name, overload, args, kwargs)
Call call_from(const py::tuple& spec) {
  const auto name = spec[0].cast<std::string>();
  Call call{c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), spec[1].cast<std::string>().c_str()), {}};
  const auto positional = spec[2].cast<py::sequence>();
  const auto named = spec[3].cast<py::dict>();
  const auto& schema = call.op.schema();
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (i < positional.size()) {
      call.arguments.push_back(argument_from(positional[i], argument));
    } else if (named.contains(argument.name().c_str())) {
      call.arguments.push_back(argument_from(named[argument.name().c_str()], argument));
    } else if (argument.default_value()) {
      call.arguments.push_back({.constant = *argument.default_value()});
    } else {
      throw InputError("call of " + name + " lacks argument '" + argument.name() + "'");
    }
  }
  return call;
}

std::optional<Call> optional_call_from(const py::object& spec) {
  if (spec.is_none()) return std::nullopt;
  return call_from(spec.cast<py::tuple>());
}

std::vector<ValueId> ids_from(const std::vector<std::uint32_t>& numbers) {
  std::vector<ValueId> ids;
  for (const std::uint32_t number : numbers) ids.push_back(ValueId{number});
  return ids;
}

std::vector<std::uint32_t> numbers_of(const std::vector<ValueId>& ids) {
  std::vector<std::uint32_t> numbers;
  for (const ValueId id : ids) numbers.push_back(static_cast<std::uint32_t>(index(id)));
  return numbers;
}

Phase phase_from(const std::string& name) {
  if (name == "forward") return Phase::kForward;
  if (name == "caller") return Phase::kCaller;
  if (name == "backward") return Phase::kBackward;
  throw InputError("unknown phase '" + name + "'");
}

ProgramOp::Kind kind_from(const std::string& name) {
  if (name == "call") return ProgramOp::Kind::kCall;
  if (name == "generator_state") return ProgramOp::Kind::kGeneratorState;
  if (name == "effect") return ProgramOp::Kind::kEffect;
  if (name == "caller") return ProgramOp::Kind::kCaller;
  if (name == "hand_over") return ProgramOp::Kind::kHandOver;
  throw InputError("unknown kind of op '" + name + "'");
}

std::uint32_t add_value(Program& program, std::int64_t bytes, bool resident, bool held) {
  program.values.push_back(
      {.bytes = bytes, .residence = resident ? Residence::kResident : Residence::kPlanned, .held = held});
  return static_cast<std::uint32_t>(program.values.size() - 1);
}

std::uint32_t add_op(Program& program, const std::string& kind, const py::kwargs& fields) {
  ProgramOp op;
  op.kind = kind_from(kind);
  op.name = fields["name"].cast<std::string>();
  op.scope = fields["scope"].cast<std::string>();
  op.phase = phase_from(fields["phase"].cast<std::string>());
  op.once = fields["once"].cast<bool>();
  if (fields.contains("call")) op.call = optional_call_from(fields["call"]);
  if (fields.contains("first_call")) op.first_call = optional_call_from(fields["first_call"]);
  if (fields.contains("in_place_call")) op.in_place_call = optional_call_from(fields["in_place_call"]);
  if (fields.contains("outputs")) op.outputs = fields["outputs"].cast<Uses>();
  if (fields.contains("generator_state") && !fields["generator_state"].is_none()) {
    op.generator_state = ValueId{fields["generator_state"].cast<std::uint32_t>()};
  }
  if (fields.contains("added") && !fields["added"].is_none()) {
    const auto [seed, other] = fields["added"].cast<std::pair<std::uint32_t, std::uint32_t>>();
    op.added_seed = ValueId{seed};
    op.added_to = ValueId{other};
  }
  if (fields.contains("also_reads")) op.also_reads = ids_from(fields["also_reads"].cast<std::vector<std::uint32_t>>());
  if (fields.contains("also_makes")) op.also_makes = ids_from(fields["also_makes"].cast<std::vector<std::uint32_t>>());
  program.ops.push_back(std::move(op));
  return static_cast<std::uint32_t>(program.ops.size() - 1);
}

}  // namespace

void bind_program(py::module_& module) {
  module.def("adds_in_any_order", &adds_in_any_order, "Whether a kernel of CUDA's adds with atomics.");
  module.def("accumulates_in_any_order", &accumulates_in_any_order, "Whether it does so where it accumulates.");
  py::class_<TensorUse>(module, "Use", "A value as a call sees it.")
      .def(py::init([](std::uint32_t value, at::ScalarType dtype, std::vector<std::int64_t> sizes,
                       std::vector<std::int64_t> strides, std::int64_t offset, bool conj, bool neg) {
             return TensorUse{ValueId{value}, {dtype, std::move(sizes), std::move(strides), offset, conj, neg}};
           }),
           py::arg("value"), py::arg("dtype"), py::arg("sizes"), py::arg("strides"), py::arg("offset"),
           py::arg("conj") = false, py::arg("neg") = false)
      .def_property_readonly("value", [](const TensorUse& use) { return index(use.value); })
      .def_property_readonly("extent_bytes", [](const TensorUse& use) { return extent_bytes(use.geometry); })
      .def("same_geometry", [](const TensorUse& a, const TensorUse& b) { return a.geometry == b.geometry; });

  py::class_<Program, std::shared_ptr<Program>>(module, "Program", "A captured step.")
      .def(py::init([](std::string name, at::Device device) {
             auto program = std::make_shared<Program>();
             program->name = std::move(name);
             program->device = device;
             return program;
           }),
           py::arg("name"), py::arg("device"))
      .def("value", &add_value, py::arg("bytes"), py::kw_only(), py::arg("resident") = false, py::arg("held") = false)
      .def("overwrite", [](Program& program, std::uint32_t new_value,
                           std::uint32_t old_value) { program.values.at(new_value).overwrites = ValueId{old_value}; })
      .def("op", &add_op, "Adds an op of this kind; the fields are those of ProgramOp.")
      .def("constant", [](Program& program, std::uint32_t value,
                          const at::Tensor& tensor) { program.constants.emplace_back(ValueId{value}, tensor); })
      .def("set_inputs", [](Program& program, Uses uses) { program.inputs = std::move(uses); })
      .def("set_seeds", [](Program& program, Uses uses) { program.seeds = std::move(uses); })
      .def("set_forward_outputs", [](Program& program, Uses uses) { program.forward_outputs = std::move(uses); })
      .def("set_gradients", [](Program& program, Uses uses) { program.gradients = std::move(uses); })
      .def("set_new_contents",
           [](Program& program, const std::vector<std::uint32_t>& values) { program.new_contents = ids_from(values); })
      .def("set_workspace_bytes",
           [](Program& program, std::uint32_t op, std::int64_t bytes) { program.ops.at(op).workspace_bytes = bytes; })
      .def("set_value_bytes",
           [](Program& program, std::uint32_t value, std::int64_t bytes) { program.values.at(value).bytes = bytes; })
      .def("value_bytes", [](const Program& program, std::uint32_t value) { return program.values.at(value).bytes; })
      .def("is_pinned",
           [](const Program& program, std::uint32_t value) {
             return program.values.at(value).held || program.values.at(value).residence == Residence::kResident;
           })
      .def_property_readonly("resident_bytes", &resident_bytes, "Of what is there before the step and after it.")
      .def_property_readonly(
          "seed_values",
          [](const Program& program) {
            std::vector<ValueId> values;
            for (const auto& seed : program.seeds) {
              if (seed) values.push_back(seed->value);
            }
            return numbers_of(values);
          },
          "The gradients of outputs.")
      .def_property_readonly("number_bytes", &number_bytes, "Bytes of the numbers its calls hold, in host memory.")
      .def_property_readonly("num_ops", [](const Program& program) { return program.ops.size(); })
      .def("is_call",
           [](const Program& program, std::uint32_t op) { return program.ops.at(op).kind == ProgramOp::Kind::kCall; })
      .def("reads", [](const Program& program, std::uint32_t op) { return numbers_of(reads(program.ops.at(op))); })
      .def("makes", [](const Program& program, std::uint32_t op) { return numbers_of(makes(program.ops.at(op))); })
      .def("op_name", [](const Program& program, std::uint32_t op) { return program.ops.at(op).name; })
      .def_property_readonly("changed_inputs",
                             [](const Program& program) { return inputs_with(program, overwritten_values(program)); })
      .def_property_readonly("read_inputs",
                             [](const Program& program) { return inputs_with(program, read_values(program)); })
      .def_property_readonly("device", [](const Program& program) { return program.device; })
      .def_property_readonly("optional_seeds", &optional_seeds, "Positions of seeds the caller may leave out.")
      .def_property_readonly("hand_over_bytes", &hand_over_bytes, "Taken while autograd receives the gradients.")
      .def_property_readonly("caller_op", [](const Program& program) { return index(program.caller_op()); })
      .def(
          "graph",
          [](const Program& program, bool random_once) {
            return graph_capsule(make_graph(program, random_once ? RandomCalls::kOnce : RandomCalls::kRepeat));
          },
          py::arg("random_once") = false, "The step as planners see it, in a capsule for reprise._core.Graph.")
      .def("signature", [](const Program& program, std::uint32_t op) { return signature(program, OpId{op}); });
}

}  // namespace reprise::bindings
