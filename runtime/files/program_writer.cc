// Training steps to text: docs/formats.md. Geometries and scopes are written once and named by their position.
#include <map>
#include <span>
#include <unordered_map>
#include <utility>

#include "io/json_writer.h"
#include "reprise/error.h"
#include "runtime/files/program_io.h"
#include "runtime/files/program_text.h"

namespace reprise {
namespace {

using detail::append_json_string;
using detail::append_list;
using detail::append_number;

using Uses = std::vector<std::optional<TensorUse>>;

std::string text_of(const Geometry& geometry) {
  std::string out = "{\"dtype\":\"" + std::string(detail::dtype_name(geometry.dtype)) + "\",\"sizes\":";
  append_list(out, geometry.sizes, [&](std::int64_t size) { append_number(out, size); });
  out += ",\"strides\":";
  append_list(out, geometry.strides, [&](std::int64_t stride) { append_number(out, stride); });
  if (geometry.offset != 0) {
    out += ",\"offset\":";
    append_number(out, geometry.offset);
  }
  if (geometry.conj) out += ",\"conj\":true";
  if (geometry.neg) out += ",\"neg\":true";
  return out + '}';
}

// Texts that come again and again, in the order of their first coming.
class Table {
 public:
  std::size_t position(std::string text) {
    const auto [entry, is_new] = positions_.try_emplace(std::move(text), texts_.size());
    if (is_new) texts_.push_back(entry->first);
    return entry->second;
  }
  [[nodiscard]] const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::map<std::string, std::size_t> positions_;
  std::vector<std::string> texts_;
};

// Everything that names geometries and scopes; the head of the file, with both, is put in front of it at the end.
class Writer {
 public:
  explicit Writer(const StepProgram& step) : step_(step), program_(*step.program) {}

  std::string text() {
    write_boundary();
    out_ += "\"ops\":[";
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      out_ += i == 0 ? "\n" : ",\n";
      write_op(program_.ops[i]);
    }
    out_ += "\n]\n}\n";
    return head() + out_;
  }

 private:
  [[nodiscard]] std::string head() const;
  [[nodiscard]] std::string values_text() const;
  void write_boundary();
  void write_constants();
  void write_op(const ProgramOp& op);
  void write_call(std::string_view key, const std::optional<Call>& call, const ProgramOp& op);
  void write_argument(const Argument& argument, const std::string& where);
  void write_constant(const c10::IValue& value, const std::string& where);
  void write_number(const at::Tensor& tensor, const std::string& where);
  void write_double(double number) { out_ += '"' + detail::double_text(number) + '"'; }

  void write_use(const std::optional<TensorUse>& use) {
    if (!use) {
      out_ += "null";
      return;
    }
    out_ += '[';
    append_number(out_, index(use->value));
    out_ += ',';
    append_number(out_, geometries_.position(text_of(use->geometry)));
    out_ += ']';
  }
  void write_uses(const Uses& uses) {
    append_list(out_, uses, [&](const std::optional<TensorUse>& use) { write_use(use); });
  }
  void write_ids(const std::vector<ValueId>& ids) {
    append_list(out_, ids, [&](ValueId id) { append_number(out_, index(id)); });
  }

  const StepProgram& step_;
  const Program& program_;
  Table geometries_;
  Table scopes_;
  std::string out_;
};

std::string Writer::head() const {
  std::string out = "{\n\"format\":\"" + std::string(detail::kProgramFormat) + "\",\"version\":";
  append_number(out, detail::kProgramVersion);
  out += ",\n\"torch\":\"" + detail::torch_version() + "\",\"device\":\"" + program_.device.str() + "\",\n\"name\":";
  append_json_string(out, program_.name);
  out += ",\n\"state\":";
  append_list(out, step_.state_names, [&](const std::string& name) { append_json_string(out, name); });
  out += ",\n\"scopes\":";
  append_list(out, scopes_.texts(), [&](const std::string& scope) { append_json_string(out, scope); });
  out += ",\n\"geometries\":[";
  for (const std::string& geometry : geometries_.texts()) out += (out.back() == '[' ? "\n" : ",\n") + geometry;
  return out + "\n],\n" + values_text();
}

std::string Writer::values_text() const {
  std::string out = "\"values\":{\n\"bytes\":";
  append_list(out, program_.values, [&](const ProgramValue& value) { append_number(out, value.bytes); });
  const auto append_those = [&](std::string_view key, auto belongs) {
    std::vector<std::size_t> ids;
    for (std::size_t i = 0; i < program_.values.size(); ++i) {
      if (belongs(program_.values[i])) ids.push_back(i);
    }
    out.append(",\n\"").append(key).append("\":");
    append_list(out, ids, [&](std::size_t id) { append_number(out, id); });
  };
  append_those("resident", [](const ProgramValue& value) { return value.residence == Residence::kResident; });
  append_those("arriving", [](const ProgramValue& value) { return value.residence == Residence::kArriving; });
  append_those("held", [](const ProgramValue& value) { return value.held; });
  out += ",\n\"overwrites\":";
  std::vector<std::pair<std::size_t, ValueId>> pairs;
  for (std::size_t i = 0; i < program_.values.size(); ++i) {
    if (program_.values[i].overwrites != kNoValue) pairs.emplace_back(i, program_.values[i].overwrites);
  }
  append_list(out, pairs, [&](const auto& pair) {
    out += '[';
    append_number(out, pair.first);
    out += ',';
    append_number(out, index(pair.second));
    out += ']';
  });
  return out + "},\n";
}

void Writer::write_boundary() {
  const auto write_named = [&](std::string_view key, const Uses& uses, auto write_owner) {
    out_.append("\"").append(key).append("\":[");
    for (std::size_t i = 0; i < uses.size(); ++i) {
      out_ += i == 0 ? "\n{\"use\":" : ",\n{\"use\":";
      write_use(uses[i]);
      write_owner(i);
      out_ += '}';
    }
    out_ += "\n],\n";
  };
  write_named("inputs", program_.inputs, [&](std::size_t i) {
    const std::int32_t owner = step_.inputs.at(i);
    out_ += owner < 0 ? ",\"state\":" : ",\"batch\":";
    append_number(out_, owner < 0 ? -(owner + 1) : owner);
  });
  write_named("gradients", program_.gradients, [&](std::size_t i) {
    if (step_.gradients.at(i) < 0 || !program_.gradients[i]) return;
    out_ += ",\"state\":";
    append_number(out_, step_.gradients[i]);
  });
  out_ += "\"forward_outputs\":";
  write_uses(program_.forward_outputs);
  out_ += ",\n\"seeds\":";
  write_uses(program_.seeds);
  out_ += ",\n\"new_contents\":";
  write_ids(program_.new_contents);
  out_ += ",\n";
  write_constants();
}

void Writer::write_constants() {
  out_ += "\"constants\":[";
  for (std::size_t i = 0; i < program_.constants.size(); ++i) {
    const auto& [value, tensor] = program_.constants[i];
    const std::string where = "constant tensor " + std::to_string(i) + " of '" + program_.name + "'";
    if (!tensor.device().is_cpu()) throw InputError(where + " lies on " + tensor.device().str() + "; make it a buffer");
    const std::size_t count = tensor.storage().nbytes();
    if (count > detail::kMostConstantBytes) {
      throw InputError(where + " has " + std::to_string(count) + " bytes, which is too much for a program file; make " +
                       "it a buffer of the model");
    }
    out_ += i == 0 ? "\n{\"use\":" : ",\n{\"use\":";
    write_use(TensorUse{value, geometry_of(tensor)});
    const auto* bytes = static_cast<const std::uint8_t*>(tensor.storage().data());
    out_ += ",\"bytes\":\"" + detail::bytes_text(std::span(bytes, count)) + "\"}";
  }
  out_ += "],\n";
}

std::string_view name_of(ProgramOp::Kind kind) {
  switch (kind) {
    case ProgramOp::Kind::kCall:
      return "call";
    case ProgramOp::Kind::kGeneratorState:
      return "generator_state";
    case ProgramOp::Kind::kEffect:
      return "effect";
    case ProgramOp::Kind::kCaller:
      return "caller";
    case ProgramOp::Kind::kHandOver:
      return "hand_over";
  }
  throw InternalError("a kind of op without a name");
}

void Writer::write_op(const ProgramOp& op) {
  out_ += "{\"name\":";
  append_json_string(out_, op.name);
  const auto write_field = [&](std::string_view key, auto number) {
    out_.append(",\"").append(key).append("\":");
    append_number(out_, number);
  };
  if (op.kind != ProgramOp::Kind::kCall) out_.append(",\"kind\":\"").append(name_of(op.kind)).append("\"");
  if (!op.scope.empty()) write_field("scope", scopes_.position(op.scope));
  if (op.phase == Phase::kCaller) out_ += ",\"phase\":\"caller\"";
  if (op.phase == Phase::kBackward) out_ += ",\"phase\":\"backward\"";
  if (op.once) out_ += ",\"once\":true";
  if (op.mutates) out_ += ",\"mutates\":true";
  if (op.expected) out_ += *op.expected ? ",\"expected\":true" : ",\"expected\":false";
  // What autograd takes at the end is known by geometry alone, on every machine.
  if (op.kind == ProgramOp::Kind::kHandOver && op.workspace_bytes != 0) {
    write_field("workspace_bytes", op.workspace_bytes);
  }
  write_call("call", op.call, op);
  write_call("first_call", op.first_call, op);
  write_call("in_place_call", op.in_place_call, op);
  if (!op.outputs.empty()) {
    out_ += ",\"outputs\":";
    write_uses(op.outputs);
  }
  if (op.generator_state != kNoValue) write_field("generator_state", index(op.generator_state));
  if (op.added_seed != kNoValue) {
    write_field("added_seed", index(op.added_seed));
    write_field("added_to", index(op.added_to));
  }
  if (!op.also_reads.empty()) {
    out_ += ",\"also_reads\":";
    write_ids(op.also_reads);
  }
  if (!op.also_makes.empty()) {
    out_ += ",\"also_makes\":";
    write_ids(op.also_makes);
  }
  out_ += '}';
}

void Writer::write_call(std::string_view key, const std::optional<Call>& call, const ProgramOp& op) {
  if (!call) return;
  const c10::OperatorName& name = call->op.operator_name();
  out_.append(",\"").append(key).append("\":{\"operator\":\"").append(name.name);
  if (!name.overload_name.empty()) out_.append(".").append(name.overload_name);
  out_ += call->grad_mode ? "\",\"grad_mode\":true,\"arguments\":" : "\",\"arguments\":";
  std::size_t position = 0;
  append_list(out_, call->arguments, [&](const Argument& argument) {
    const auto& schema = call->op.schema().arguments();
    const std::string argument_name = position < schema.size() ? schema[position].name() : std::to_string(position);
    ++position;
    write_argument(argument, "op '" + op.name + "', " + name.name + ", argument '" + argument_name + "'");
  });
  out_ += '}';
}

void Writer::write_argument(const Argument& argument, const std::string& where) {
  switch (argument.kind) {
    case Argument::Kind::kConstant:
      return write_constant(argument.constant, where);
    case Argument::Kind::kTensor:
      return write_use(argument.tensors.at(0));
    case Argument::Kind::kTensorList:
      out_ += "{\"list\":";
      break;
    case Argument::Kind::kOptionalTensorList:
      out_ += "{\"optional_list\":";
      break;
  }
  write_uses(argument.tensors);
  out_ += '}';
}

void Writer::write_constant(const c10::IValue& value, const std::string& where) {
  if (value.isNone()) {
    out_ += "null";
  } else if (value.isBool()) {
    out_ += value.toBool() ? "true" : "false";
  } else if (value.isInt()) {
    append_number(out_, value.toInt());
  } else if (value.isTensor() && value.toTensor().defined()) {
    write_number(value.toTensor(), where);
  } else {
    out_ += '{';
    if (value.isDouble()) {
      out_ += "\"double\":";
      write_double(value.toDouble());
    } else if (value.isString()) {
      out_ += "\"string\":";
      append_json_string(out_, value.toStringRef());
    } else if (value.isDevice()) {
      out_ += "\"device\":\"" + value.toDevice().str() + '"';
    } else if (value.isTensor()) {
      out_ += "\"undefined\":true";
    } else if (value.isIntList()) {
      out_ += "\"ints\":";
      append_list(out_, value.toIntVector(), [&](std::int64_t number) { append_number(out_, number); });
    } else if (value.isDoubleList()) {
      out_ += "\"doubles\":";
      append_list(out_, value.toDoubleVector(), [&](double number) { write_double(number); });
    } else if (value.isBoolList()) {
      out_ += "\"bools\":";
      append_list(out_, value.toBoolList().vec(), [&](bool flag) { out_ += flag ? "true" : "false"; });
    } else {
      throw InputError(where + ": a program file cannot hold a constant of the kind " + value.tagKind() +
                       "; compute it from a tensor, or move the operator out of the step");
    }
    out_ += '}';
  }
}

// A number where the schema asks for a tensor: its type does not take part in promotion.
void Writer::write_number(const at::Tensor& tensor, const std::string& where) {
  if (tensor.dim() != 0 || !tensor.device().is_cpu() || !tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    throw InputError(where + ": a tensor that is neither a value of the program nor a number; make it a buffer");
  }
  const void* data = tensor.const_data_ptr();
  out_ += "{\"number\":";
  if (tensor.scalar_type() == at::kDouble) {
    write_double(*static_cast<const double*>(data));
  } else if (tensor.scalar_type() == at::kLong) {
    append_number(out_, *static_cast<const std::int64_t*>(data));
  } else if (tensor.scalar_type() == at::kBool) {
    out_ += *static_cast<const bool*>(data) ? "true" : "false";
  } else {
    throw InputError(where + ": a program file cannot hold a number of type " + c10::toString(tensor.scalar_type()));
  }
  out_ += '}';
}

// Parameters come back from a file each in its own memory.
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
    throw InputError("'" + step.program->name + "': it is not said of every input and gradient what it is");
  }
  check_memory(step);
  return Writer(step).text();
}

}  // namespace reprise
