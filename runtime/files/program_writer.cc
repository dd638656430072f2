// Training steps to text: docs/formats.md. Geometries and scopes are written once and named by their position.
#include <array>
#include <span>
#include <unordered_map>
#include <utility>

#include "io/json_writer.h"
#include "reprise/error.h"
#include "runtime/files/program_io.h"
#include "runtime/files/program_text.h"

namespace reprise {
namespace {

using detail::append_json;
using detail::append_list;
using detail::JsonNames;
using detail::JsonObject;
using detail::name_of;

using Uses = std::vector<std::optional<TensorUse>>;

std::string text_of(const Geometry& geometry) {
  std::string out;
  {
    JsonObject object(out);
    object.field("dtype", detail::dtype_name(geometry.dtype));
    object.field("sizes", geometry.sizes);
    object.field("strides", geometry.strides);
    object.unless("offset", geometry.offset, 0);
    object.unless("conj", geometry.conj, false);
    object.unless("neg", geometry.neg, false);
  }
  return out;
}

// Geometries and scopes get their positions while the rest is written. The head of the file, which contains both, is
// put in front at the end.
class Writer {
 public:
  explicit Writer(const StepProgram& step) : step_(step), program_(*step.program) {}

  std::string text() {
    {
      JsonObject file(out_);
      write_boundary(file);
      write_constants(file);
      write_lines(file.line("ops"), program_.ops, [&](const ProgramOp& op) { write_op(op); });
      out_ += '\n';
    }
    std::string text = head();
    text.back() = ',';  // instead of ending the object
    return text + out_.substr(1) + '\n';
  }

 private:
  [[nodiscard]] std::string head() const;
  void write_values(std::string& out) const;
  void write_boundary(JsonObject& file);
  void write_constants(JsonObject& file);
  void write_op(const ProgramOp& op);
  void write_call(JsonObject& op, std::string_view key, const std::optional<Call>& call, const std::string& where);
  void write_argument(const Argument& argument, const std::string& where);
  void write_constant(const c10::IValue& value, const std::string& where);
  void write_number(const at::Tensor& tensor, const std::string& where);

  template <typename Items, typename Write>
  void write_lines(std::string& out, const Items& items, Write write) const {
    append_list(out, items, [&](const auto& item) {
      out += '\n';
      write(item);
    });
    out.insert(out.size() - 1, "\n");
  }
  void write_use(const std::optional<TensorUse>& use) {
    if (!use) {
      out_ += "null";
    } else {
      append_json(out_, std::array{index(use->value), geometries_[text_of(use->geometry)]});
    }
  }
  void write_uses(const Uses& uses) {
    append_list(out_, uses, [&](const std::optional<TensorUse>& use) { write_use(use); });
  }

  const StepProgram& step_;
  const Program& program_;
  JsonNames geometries_;
  JsonNames scopes_;
  std::string out_;
};

std::string Writer::head() const {
  std::string out;
  {
    JsonObject file(out);
    file.line("format", detail::kProgramFormat);
    file.field("version", detail::kProgramVersion);
    file.line("torch", detail::torch_version());
    file.field("device", program_.device.str());
    file.line("name", program_.name);
    file.line("state", step_.state_names);
    file.line("scopes", scopes_.list());
    write_lines(file.line("geometries"), geometries_.list(), [&](const std::string& geometry) { out += geometry; });
    write_values(file.line("values"));
  }
  return out;
}

void Writer::write_values(std::string& out) const {
  JsonObject object(out);
  const auto& values = program_.values;
  append_list(object.line("bytes"), values, [&](const ProgramValue& value) { append_json(out, value.bytes); });
  const auto those = [&](auto belongs) {
    std::vector<ValueId> ids;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (belongs(values[i])) ids.push_back(value_id(i));
    }
    return ids;
  };
  object.line("resident", those([](const ProgramValue& value) { return value.residence == Residence::kResident; }));
  object.line("arriving", those([](const ProgramValue& value) { return value.residence == Residence::kArriving; }));
  object.line("held", those([](const ProgramValue& value) { return value.held; }));
  append_list(object.line("overwrites"), those([](const ProgramValue& value) { return value.overwrites != kNoValue; }),
              [&](ValueId value) {
                append_json(out, std::array{value, values[index(value)].overwrites});
              });
}

void Writer::write_boundary(JsonObject& file) {
  const auto write_named = [&](std::string_view key, const Uses& uses, auto write_owner) {
    std::size_t i = 0;
    write_lines(file.line(key), uses, [&](const std::optional<TensorUse>& use) {
      JsonObject object(out_);
      object.key("use");
      write_use(use);
      write_owner(object, i++);
    });
  };
  write_named("inputs", program_.inputs, [&](JsonObject& object, std::size_t i) {
    const std::int32_t owner = step_.inputs.at(i);
    object.field(owner < 0 ? "state" : "batch", owner < 0 ? -(owner + 1) : owner);
  });
  write_named("gradients", program_.gradients, [&](JsonObject& object, std::size_t i) {
    if (program_.gradients[i] && step_.gradients.at(i) >= 0) object.field("state", step_.gradients[i]);
  });
  file.line("forward_outputs");
  write_uses(program_.forward_outputs);
  file.line("seeds");
  write_uses(program_.seeds);
  file.line("new_contents", program_.new_contents);
}

void Writer::write_constants(JsonObject& file) {
  file.line("constants") += '[';
  for (std::size_t i = 0; i < program_.constants.size(); ++i) {
    const auto& [value, tensor] = program_.constants[i];
    const std::string where = "constant tensor " + std::to_string(i) + " of '" + program_.name + "'";
    if (!tensor.device().is_cpu()) throw InputError(where + " lies on " + tensor.device().str() + "; make it a buffer");
    const std::size_t count = tensor.storage().nbytes();
    if (count > detail::kMostConstantBytes) {
      throw InputError(where + " has " + std::to_string(count) + " bytes, which is too many for a program file; make " +
                       "it a buffer of the model");
    }
    JsonObject object(out_ += i == 0 ? "\n" : ",\n");
    object.key("use");
    write_use(TensorUse{value, geometry_of(tensor)});
    const auto* bytes = static_cast<const std::uint8_t*>(tensor.storage().data());
    object.field("bytes", detail::bytes_text(std::span(bytes, count)));
  }
  out_ += ']';
}

void Writer::write_op(const ProgramOp& op) {
  JsonObject object(out_);
  object.field("name", op.name);
  if (op.kind != ProgramOp::Kind::kCall) object.field("kind", name_of(detail::kOpKinds, op.kind));
  if (!op.scope.empty()) object.field("scope", scopes_[op.scope]);
  if (op.phase != Phase::kForward) object.field("phase", name_of(detail::kPhases, op.phase));
  object.unless("once", op.once, false);
  object.unless("mutates", op.mutates, false);
  if (op.expected) object.field("expected", *op.expected);
  // What autograd takes at the end follows from geometry alone and is the same on every machine.
  if (op.kind == ProgramOp::Kind::kHandOver) object.unless("workspace_bytes", op.workspace_bytes, 0);
  const std::string where = "op '" + op.name + "', ";
  write_call(object, "call", op.call, where);
  write_call(object, "first_call", op.first_call, where);
  write_call(object, "in_place_call", op.in_place_call, where);
  if (!op.outputs.empty()) {
    object.key("outputs");
    write_uses(op.outputs);
  }
  object.unless("generator_state", op.generator_state, kNoValue);
  object.unless("added_seed", op.added_seed, kNoValue);
  object.unless("added_to", op.added_to, kNoValue);
  object.unless_empty("also_reads", op.also_reads);
  object.unless_empty("also_makes", op.also_makes);
}

void Writer::write_call(JsonObject& op, std::string_view key, const std::optional<Call>& call,
                        const std::string& where) {
  if (!call) return;
  const c10::OperatorName& name = call->op.operator_name();
  JsonObject object(op.key(key));
  object.field("operator", name.overload_name.empty() ? name.name : name.name + '.' + name.overload_name);
  object.unless("grad_mode", call->grad_mode, false);
  std::size_t position = 0;
  append_list(object.key("arguments"), call->arguments, [&](const Argument& argument) {
    const auto& schema = call->op.schema().arguments();
    const std::string argument_name = position < schema.size() ? schema[position].name() : std::to_string(position);
    ++position;
    write_argument(argument, where + name.name + ", argument '" + argument_name + "'");
  });
}

void Writer::write_argument(const Argument& argument, const std::string& where) {
  switch (argument.kind) {
    case Argument::Kind::kConstant:
      return write_constant(argument.constant, where);
    case Argument::Kind::kTensor:
      return write_use(argument.tensors.at(0));
    case Argument::Kind::kTensorList:
    case Argument::Kind::kOptionalTensorList:
      JsonObject object(out_);
      object.key(argument.kind == Argument::Kind::kTensorList ? "list" : "optional_list");
      write_uses(argument.tensors);
  }
}

void Writer::write_constant(const c10::IValue& value, const std::string& where) {
  if (value.isNone()) {
    out_ += "null";
  } else if (value.isBool()) {
    append_json(out_, value.toBool());
  } else if (value.isInt()) {
    append_json(out_, value.toInt());
  } else if (value.isTensor() && value.toTensor().defined()) {
    write_number(value.toTensor(), where);
  } else {
    JsonObject object(out_);
    if (value.isDouble()) {
      object.field("double", detail::double_text(value.toDouble()));
    } else if (value.isString()) {
      object.field("string", value.toStringRef());
    } else if (value.isDevice()) {
      object.field("device", value.toDevice().str());
    } else if (value.isTensor()) {
      object.field("undefined", true);
    } else if (value.isIntList()) {
      object.field("ints", value.toIntVector());
    } else if (value.isDoubleList()) {
      append_list(object.key("doubles"), value.toDoubleVector(),
                  [&](double number) { append_json(out_, detail::double_text(number)); });
    } else if (value.isBoolList()) {
      object.field("bools", value.toBoolList().vec());
    } else {
      throw InputError(where + ": a program file cannot hold a constant of the kind " + value.tagKind() +
                       "; compute it from a tensor, or move the operator out of the step");
    }
  }
}

// Writes a number where the schema asks for a tensor; its type does not take part in promotion.
void Writer::write_number(const at::Tensor& tensor, const std::string& where) {
  if (tensor.dim() != 0 || !tensor.device().is_cpu() || !tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    throw InputError(where + ": a tensor that is neither a value of the program nor a number; make it a buffer");
  }
  const void* data = tensor.const_data_ptr();
  JsonObject object(out_);
  if (tensor.scalar_type() == at::kDouble) {
    object.field("number", detail::double_text(*static_cast<const double*>(data)));
  } else if (tensor.scalar_type() == at::kLong) {
    object.field("number", *static_cast<const std::int64_t*>(data));
  } else if (tensor.scalar_type() == at::kBool) {
    object.field("number", *static_cast<const bool*>(data));
  } else {
    throw InputError(where + ": a program file cannot hold a number of type " + c10::toString(tensor.scalar_type()));
  }
}

// Each parameter that is read from a file gets memory of its own, so parameters must not share memory.
void check_memory(const StepProgram& step) {
  std::unordered_map<ValueId, std::size_t> given;
  const auto name_of = [&](std::size_t i) {
    const std::int32_t input = step.inputs[i];
    return input >= 0 ? "input " + std::to_string(input)
                      : "'" + step.state_names.at(static_cast<std::size_t>(-1 - input)) + "'";
  };
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    if (!step.program->inputs[i]) continue;
    const auto [other, is_new] = given.emplace(step.program->inputs[i]->value, i);
    if (is_new) continue;
    throw InputError("'" + step.program->name + "' cannot be written to a file: " + name_of(other->second) + " and " +
                     name_of(i) + " lie in one memory, which a file cannot say. Give each its own (clone()); " +
                     "recurrent layers on CUDA put theirs together");
  }
}

}  // namespace

std::string format_program(const StepProgram& step) {
  if (step.inputs.size() != step.program->inputs.size() || step.gradients.size() != step.program->gradients.size()) {
    throw InputError("'" + step.program->name + "': not every input and gradient is described");
  }
  check_memory(step);
  return Writer(step).text();
}

}  // namespace reprise
