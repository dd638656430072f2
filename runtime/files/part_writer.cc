#include "runtime/files/part_writer.h"

#include <array>
#include <unordered_map>

#include "reprise/error.h"
#include "runtime/files/program_text.h"
#include "runtime/program/family/size_table.h"

namespace reprise::detail {
namespace {

std::string text_of(const Geometry& geometry) {
  std::string out;
  {
    JsonObject object(out);
    const auto size = [&](std::int64_t number) { append_size(out, number); };
    object.field("dtype", dtype_name(geometry.dtype));
    append_list(object.key("sizes"), geometry.sizes, size);
    append_list(object.key("strides"), geometry.strides, size);
    if (geometry.offset != 0) append_size(object.key("offset"), geometry.offset);
    object.unless("conj", geometry.conj, false);
    object.unless("neg", geometry.neg, false);
  }
  return out;
}

}  // namespace

void append_size(std::string& out, std::int64_t number) {
  const auto position = SizeTable::position(number);
  if (!position) return append_json(out, number);
  JsonObject object(out);
  object.field("computed", *position);
}

std::size_t PartWriter::geometry(const Geometry& geometry) { return geometries_[text_of(geometry)]; }

void PartWriter::use(const std::optional<TensorUse>& use) {
  if (!use) {
    out_ += "null";
  } else {
    append_json(out_, std::array{index(use->value), geometry(use->geometry)});
  }
}

void PartWriter::uses(const std::vector<std::optional<TensorUse>>& uses) {
  append_list(out_, uses, [&](const std::optional<TensorUse>& one) { use(one); });
}

void PartWriter::call(JsonObject& op, std::string_view key, const std::optional<Call>& call, const std::string& where) {
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

void PartWriter::write_argument(const Argument& argument, const std::string& where) {
  switch (argument.kind) {
    case Argument::Kind::kConstant:
      return write_constant(argument.constant, where);
    case Argument::Kind::kTensor:
      return use(argument.tensors.at(0));
    case Argument::Kind::kTensorList:
    case Argument::Kind::kOptionalTensorList:
      JsonObject object(out_);
      object.key(argument.kind == Argument::Kind::kTensorList ? "list" : "optional_list");
      uses(argument.tensors);
  }
}

void PartWriter::write_constant(const c10::IValue& value, const std::string& where) {
  if (value.isNone()) {
    out_ += "null";
  } else if (value.isBool()) {
    append_json(out_, value.toBool());
  } else if (value.isInt()) {
    append_size(out_, value.toInt());
  } else if (value.isTensor() && value.toTensor().defined()) {
    write_number(value.toTensor(), where);
  } else {
    JsonObject object(out_);
    if (value.isDouble()) {
      object.field("double", double_text(value.toDouble()));
    } else if (value.isString()) {
      object.field("string", value.toStringRef());
    } else if (value.isDevice()) {
      object.field("device", value.toDevice().str());
    } else if (value.isTensor()) {
      object.field("undefined", true);
    } else if (value.isIntList()) {
      append_list(object.key("ints"), value.toIntVector(), [&](std::int64_t size) { append_size(out_, size); });
    } else if (value.isDoubleList()) {
      append_list(object.key("doubles"), value.toDoubleVector(),
                  [&](double number) { append_json(out_, double_text(number)); });
    } else if (value.isBoolList()) {
      object.field("bools", value.toBoolList().vec());
    } else {
      throw InputError(where + ": a program file cannot hold a constant of the kind " + value.tagKind() +
                       "; compute it from a tensor, or move the operator out of the step");
    }
  }
}

// Writes a number where the schema asks for a tensor; its type does not take part in promotion.
void PartWriter::write_number(const at::Tensor& tensor, const std::string& where) {
  if (tensor.dim() != 0 || !tensor.device().is_cpu() || !tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    throw InputError(where + ": a tensor that is neither a value of the program nor a number; make it a buffer");
  }
  const void* data = tensor.const_data_ptr();
  JsonObject object(out_);
  if (tensor.scalar_type() == at::kDouble) {
    object.field("number", double_text(*static_cast<const double*>(data)));
  } else if (tensor.scalar_type() == at::kLong) {
    append_size(object.key("number"), *static_cast<const std::int64_t*>(data));
  } else if (tensor.scalar_type() == at::kBool) {
    object.field("number", *static_cast<const bool*>(data));
  } else {
    throw InputError(where + ": a program file cannot hold a number of type " + c10::toString(tensor.scalar_type()));
  }
}

void check_own_memory(const std::string& program, std::span<const std::optional<TensorUse>> inputs,
                      std::span<const std::int32_t> owners, std::span<const std::string> state_names) {
  std::unordered_map<ValueId, std::size_t> given;
  const auto words = [&](std::size_t i) {
    return owners[i] >= 0 ? "input " + std::to_string(owners[i])
                          : "'" + state_names[static_cast<std::size_t>(-1 - owners[i])] + "'";
  };
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i]) continue;
    const auto [other, is_new] = given.emplace(inputs[i]->value, i);
    if (is_new) continue;
    throw InputError("'" + program + "' cannot be written to a file: " + words(other->second) + " and " + words(i) +
                     " lie in one memory, which a file cannot say. Give each its own (clone()); recurrent layers on "
                     "CUDA put theirs together");
  }
}

void PartWriter::constants(JsonObject& file, std::span<const std::pair<ValueId, at::Tensor>> constants,
                           const std::string& name) {
  file.line("constants") += '[';
  for (std::size_t i = 0; i < constants.size(); ++i) {
    const auto& [value, tensor] = constants[i];
    const std::string where = "constant tensor " + std::to_string(i) + " of '" + name + "'";
    if (!tensor.device().is_cpu()) throw InputError(where + " lies on " + tensor.device().str() + "; make it a buffer");
    const std::size_t count = tensor.storage().nbytes();
    if (count > kMostConstantBytes) {
      throw InputError(where + " has " + std::to_string(count) + " bytes, which is too many for a program file; make " +
                       "it a buffer of the model");
    }
    JsonObject object(out_ += i == 0 ? "\n" : ",\n");
    object.key("use");
    use(TensorUse{value, geometry_of(tensor)});
    const auto* bytes = static_cast<const std::uint8_t*>(tensor.storage().data());
    object.field("bytes", bytes_text(std::span(bytes, count)));
  }
  out_ += ']';
}

}  // namespace reprise::detail
