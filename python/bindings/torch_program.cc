#include <torch/csrc/jit/python/pybind_utils.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "reprise/error.h"
#include "runtime/kernels/kernel.h"
#include "runtime/program/collectives.h"
#include "runtime/program/family/difference.h"
#include "runtime/program/family/program_family.h"
#include "runtime/program/program_builder.h"
#include "runtime/program/program_queries.h"
#include "runtime/program/tensor_memory.h"
#include "runtime/session/ledger.h"
#include "torch_parts.h"

namespace reprise::bindings {
namespace {

// A tensor argument is converted by its type in the schema, anything else as TorchScript converts it.
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

// A call of the operator `target`, such as "aten::add.Tensor", with arguments from Python.
Call call_from(const std::string& target, const py::sequence& positional, const py::dict& named) {
  const auto found = find_operator(target);
  if (!found) throw InputError("this libtorch has no operator '" + target + "'");
  Call call{*found, {}};
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
      throw InputError("call of " + target + " lacks argument '" + argument.name() + "'");
    }
  }
  return call;
}

std::vector<std::uint32_t> numbers_of(const std::vector<ValueId>& ids) {
  std::vector<std::uint32_t> numbers;
  for (const ValueId id : ids) numbers.push_back(static_cast<std::uint32_t>(index(id)));
  return numbers;
}

using Called = std::tuple<std::string, py::sequence, py::dict>;

ProgramBuilder::SeenCall seen_call(at::Device device, const std::string& name, const std::string& scope,
                                   const Called& called, Uses results, const std::optional<Called>& first) {
  Call call = std::apply(call_from, called);
  ProgramBuilder::SeenCall seen{.name = name,
                                .scope = scope,
                                .call = call,
                                .facts = facts_of(call),
                                .repeats = Kernel(call).repeats(device) || moves_bytes(call),
                                .results = std::move(results)};
  if (first) seen.first_call = std::apply(call_from, *first);
  return seen;
}

std::uint32_t add_call(ProgramBuilder& builder, const std::string& name, const std::string& scope, const Called& called,
                       Uses results, const std::optional<Called>& first) {
  auto seen = seen_call(builder.program().device, name, scope, called, std::move(results), first);
  return static_cast<std::uint32_t>(index(builder.call(std::move(seen))));
}

// (gradient, geometry of the tensor it belongs to, name and scope of what made it), or nothing if there is no gradient.
using GradientTuple = std::optional<std::tuple<TensorUse, Geometry, std::string, std::string>>;

std::vector<std::optional<ProgramBuilder::Gradient>> gradients_from(const std::vector<GradientTuple>& given) {
  std::vector<std::optional<ProgramBuilder::Gradient>> gradients;
  for (const GradientTuple& gradient : given) {
    gradients.emplace_back();
    if (!gradient) continue;
    const auto& [use, variable, name, scope] = *gradient;
    gradients.back() = {.use = use, .variable = variable, .name = name, .scope = scope};
  }
  return gradients;
}

// Also returns, for each op of the program, the op it was made from.
std::pair<std::shared_ptr<Program>, std::vector<std::uint32_t>> finish(ProgramBuilder& builder,
                                                                       const std::vector<GradientTuple>& gradients,
                                                                       std::optional<bool> split) {
  auto program = std::make_shared<Program>(builder.finish(gradients_from(gradients), split));
  std::vector<std::uint32_t> origins;
  for (const OpId op : builder.origins()) origins.push_back(static_cast<std::uint32_t>(index(op)));
  return {std::move(program), std::move(origins)};
}

// Names memory by a number.
template <typename Builder>
auto memory_of(ValueId (Builder::*add)(std::int64_t, at::Device)) {
  return
      [add](Builder& builder, std::int64_t bytes, at::Device device) { return index((builder.*add)(bytes, device)); };
}

void bind_builder(py::module_& module) {
  py::class_<Geometry>(module, "Geometry", "How a call sees memory.")
      .def(py::init([](at::ScalarType dtype, std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides,
                       std::int64_t offset, bool conj,
                       bool neg) { return Geometry{dtype, std::move(sizes), std::move(strides), offset, conj, neg}; }),
           py::arg("dtype"), py::arg("sizes"), py::arg("strides"), py::arg("offset"), py::arg("conj") = false,
           py::arg("neg") = false);
  py::class_<TensorUse>(module, "Use", "A value, or memory by its name, as a call sees it.")
      .def(py::init([](std::uint32_t value, Geometry geometry) {
             return TensorUse{ValueId{value}, std::move(geometry)};
           }),
           py::arg("value"), py::arg("geometry"));
  py::class_<ProgramBuilder>(module, "ProgramBuilder", "Makes a program of calls. Memory is named by a number.")
      .def(py::init<std::string, at::Device>(), py::arg("name"), py::arg("device"))
      .def("resident", memory_of(&ProgramBuilder::resident), py::arg("bytes"), py::arg("device"),
           "Memory that exists before the step.")
      .def("made", memory_of(&ProgramBuilder::made), py::arg("bytes"), py::arg("device"),
           "Memory that the next call makes.")
      .def("seed", memory_of(&ProgramBuilder::seed), py::arg("bytes"), py::arg("device"),
           "Memory of a gradient that the caller provides.")
      .def("input", &ProgramBuilder::input, py::arg("use"), "The next tensor that forward gets.")
      .def(
          "constant",
          [](ProgramBuilder& builder, std::uint32_t memory, const at::Tensor& tensor) {
            builder.constant(ValueId{memory}, tensor);
          },
          py::arg("memory"), py::arg("tensor"), "Contents that belong to the program.")
      .def("call", &add_call, py::arg("name"), py::arg("scope"), py::arg("called"), py::arg("results"),
           py::arg("first") = py::none(),
           "Adds a call (operator, args, kwargs) and returns its number. results: uses of what it makes. first: the "
           "call of the first run, if it differs.")
      .def("end_forward", &ProgramBuilder::end_forward, py::arg("outputs"), py::arg("seeds"))
      .def("finish", &finish, py::arg("gradients"), py::arg("split") = py::none(),
           "(program, numbers of the calls that its ops were made of). gradients: (use, geometry of whose it is, name, "
           "scope). split: large convolutions in two calls; by default on CUDA.");
  module.def("declare_repeatable", &declare_repeatable);
  module.def(
      "is_random", [](const Called& called) { return facts_of(std::apply(call_from, called)).random; },
      py::arg("called"), "Whether the call draws random numbers.");
}

void bind_family(py::module_& module) {
  py::class_<ProgramFamily, std::shared_ptr<ProgramFamily>>(
      module, "ProgramFamily", "A step for inputs of any size. It is told what a ProgramBuilder is told.")
      .def(py::init<std::string, at::Device, std::size_t>(), py::arg("name"), py::arg("device"), py::arg("num_symbols"))
      .def(
          "size", [](ProgramFamily& family, const Postfix& postfix) { return family.size(expression_from(postfix)); },
          py::arg("postfix"),
          "The name of a number that follows from sizes, which stands for the number. postfix: codes and numbers.")
      .def("resident", memory_of(&ProgramFamily::resident), py::arg("bytes"), py::arg("device"))
      .def("made", memory_of(&ProgramFamily::made), py::arg("bytes"), py::arg("device"))
      .def("seed", memory_of(&ProgramFamily::seed), py::arg("bytes"), py::arg("device"))
      .def("input", &ProgramFamily::input, py::arg("use"))
      .def(
          "constant",
          [](ProgramFamily& family, std::uint32_t memory, const at::Tensor& tensor) {
            family.constant(ValueId{memory}, tensor);
          },
          py::arg("memory"), py::arg("tensor"))
      .def(
          "call",
          [](ProgramFamily& family, const std::string& name, const std::string& scope, const Called& called,
             Uses results) { family.call(seen_call(family.device(), name, scope, called, std::move(results), {})); },
          py::arg("name"), py::arg("scope"), py::arg("called"), py::arg("results"))
      .def("end_forward", &ProgramFamily::end_forward, py::arg("outputs"), py::arg("seeds"))
      .def(
          "finish",
          [](ProgramFamily& family, const std::vector<GradientTuple>& gradients, std::optional<bool> split) {
            family.finish(gradients_from(gradients), split);
          },
          py::arg("gradients"), py::arg("split") = py::none())
      .def(
          "at",
          [](const ProgramFamily& family, const std::vector<std::int64_t>& symbols) {
            return std::make_shared<Program>(family.at(symbols));
          },
          py::arg("symbols"), "The program at one size.");
}

}  // namespace

SizeTable::Expression expression_from(const Postfix& postfix) {
  SizeTable::Expression expression;
  for (const auto& [code, number] : postfix) {
    const auto* known = std::ranges::find(kSizeCodes, code, &std::pair<std::string_view, SizeTable::Code>::first);
    if (known == std::end(kSizeCodes)) throw InputError("sizes are not computed by '" + code + "'");
    expression.push_back({known->second, number});
  }
  return expression;
}

Postfix postfix_of(const SizeTable::Expression& expression) {
  Postfix postfix;
  for (const auto& [code, number] : expression) {
    const auto* known = std::ranges::find(kSizeCodes, code, &std::pair<std::string_view, SizeTable::Code>::second);
    postfix.emplace_back(known->first, number);
  }
  return postfix;
}

// Names of calls of which a second run may give other bits.
std::vector<std::string> unrepeatable(const Program& program) {
  std::vector<std::string> names;
  for (const ProgramOp& op : program.ops) {
    if (op.kind == ProgramOp::Kind::kCall && !Kernel(*op.call).repeats(program.device) && !moves_bytes(*op.call)) {
      names.push_back(op.name);
    }
  }
  return names;
}

void bind_program(py::module_& module) {
  bind_builder(module);
  bind_family(module);
  py::class_<Program, std::shared_ptr<Program>>(module, "Program", "A captured step.")
      .def_property_readonly("groups", &groups_of, "The names of the groups of processes in which it communicates.")
      .def_property_readonly("resident_bytes", &resident_bytes, "Bytes of what exists before and after the step.")
      .def_property_readonly(
          "own_bytes", [](const Program& program) { return storage_bytes(own_tensors(program), program.device); },
          "Bytes of the tensors that it holds itself: constants, and numbers that are given to operators as tensors.")
      .def_property_readonly(
          "seed_values", [](const Program& program) { return numbers_of(values_of(program.seeds)); },
          "The gradients of outputs.")
      .def_property_readonly("unrepeatable", &unrepeatable,
                             "The names of calls of which a second run may give other bits.")
      .def_property_readonly("num_ops", [](const Program& program) { return program.ops.size(); })
      .def_property_readonly("caller_op", [](const Program& program) { return index(program.caller_op()); })
      .def("is_call",
           [](const Program& program, std::uint32_t op) { return program.ops.at(op).kind == ProgramOp::Kind::kCall; })
      .def(
          "graph",
          [](const Program& program, bool random_once) {
            return to_capsule(make_graph(program, random_once ? RandomCalls::kOnce : RandomCalls::kRepeat));
          },
          py::arg("random_once") = false, "The step as planners see it, in a capsule for reprise._core.Graph.")
      .def(
          "signature",
          [](const Program& program, std::uint32_t op) {
            return Kernel(program.ops.at(op).call.value()).describe(program);
          },
          py::arg("op"), "The text that identifies the costs of the call.")
      .def("difference", &difference, py::arg("other"), "Where two programs first differ, in words, or None.");
}

}  // namespace reprise::bindings
