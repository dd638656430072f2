#include "runtime/files/program_arguments.h"

#include <ATen/Functions.h>

#include <cstring>
#include <functional>
#include <utility>

#include "reprise/error.h"
#include "runtime/files/program_text.h"
#include "runtime/program/family/size_table.h"
#include "runtime/program/tensor_memory.h"

namespace reprise::detail {
namespace {

std::int64_t read_computed(JsonReader& in, const ProgramNames& names) {
  const std::uint32_t position = in.id();
  if (!names.num_computed) in.fail("this step is of one size, and nothing is computed from sizes");
  if (position < *names.num_computed) return SizeTable::name(position);
  in.fail("`computed` has " + std::to_string(*names.num_computed) + " expressions, and comes first");
}

struct ComputedReading {
  const ProgramNames* names;
  std::int64_t number = 0;
};

constexpr JsonField<ComputedReading> kComputedFields[] = {
    {"computed", [](JsonReader& in, ComputedReading& item) { item.number = read_computed(in, *item.names); },
     kRequired},
};

struct ArgumentReading {
  const ProgramNames* names;
  Argument argument;

  void set(c10::IValue constant) { argument.constant = std::move(constant); }
};

double read_double(JsonReader& in) {
  const std::string text = in.string();
  const auto number = double_from(text);
  if (!number) in.fail("'" + text + "' is not a number");
  return *number;
}

void read_number(JsonReader& in, ArgumentReading& item) {
  const c10::Scalar number = in.at(JsonKind::kBoolean)  ? c10::Scalar(in.boolean())
                             : in.at(JsonKind::kString) ? c10::Scalar(read_double(in))
                                                        : c10::Scalar(read_integer(in, *item.names));
  item.set(wrapped_number(number));
}

void read_device_argument(JsonReader& in, ArgumentReading& item) {
  const std::string name = in.string();
  const auto device = device_from(name);
  if (!device) in.fail("'" + name + "' is not a device");
  item.set(*device);
}

template <typename T, typename Read>
void read_list(JsonReader& in, ArgumentReading& item, Read read) {
  c10::List<T> list;
  in.array([&] { list.push_back(std::invoke(read, in)); });
  item.set(std::move(list));
}

void read_tensors(JsonReader& in, ArgumentReading& item, Argument::Kind kind) {
  item.argument.kind = kind;
  item.argument.tensors = read_uses(in, *item.names);
  if (kind == Argument::Kind::kOptionalTensorList) return;
  for (const auto& use : item.argument.tensors) {
    if (!use) in.fail("a list without a tensor at one place is an `optional_list`");
  }
}

constexpr JsonField<ArgumentReading> kArgumentFields[] = {
    {"double", [](JsonReader& in, ArgumentReading& item) { item.set(read_double(in)); }},
    {"string", [](JsonReader& in, ArgumentReading& item) { item.set(in.string()); }},
    {"device", read_device_argument},
    {"ints",
     [](JsonReader& in, ArgumentReading& item) {
       read_list<std::int64_t>(in, item, [&](JsonReader& number) { return read_integer(number, *item.names); });
     }},
    {"computed", [](JsonReader& in, ArgumentReading& item) { item.set(read_computed(in, *item.names)); }},
    {"doubles", [](JsonReader& in, ArgumentReading& item) { read_list<double>(in, item, read_double); }},
    {"bools", [](JsonReader& in, ArgumentReading& item) { read_list<bool>(in, item, &JsonReader::boolean); }},
    {"number", read_number},
    {"undefined",
     [](JsonReader& in, ArgumentReading& item) {
       if (!in.boolean()) in.fail("can only be true");
       item.set(at::Tensor());
     }},
    {"list", [](JsonReader& in, ArgumentReading& item) { read_tensors(in, item, Argument::Kind::kTensorList); }},
    {"optional_list",
     [](JsonReader& in, ArgumentReading& item) { read_tensors(in, item, Argument::Kind::kOptionalTensorList); }},
};

Argument read_argument(JsonReader& in, const ProgramNames& names) {
  if (in.at(JsonKind::kArray)) return {.kind = Argument::Kind::kTensor, .tensors = {read_use(in, names)}};
  if (in.at(JsonKind::kBoolean)) return {.constant = in.boolean()};
  if (in.at(JsonKind::kInteger)) return {.constant = read_integer(in, names)};
  if (in.at(JsonKind::kNull)) {
    in.null();
    return {};
  }
  ArgumentReading item{&names, {}};
  if (in.object(kArgumentFields, item) != 1) in.fail("an argument has one key");
  return std::move(item.argument);
}

bool is_list_of(const c10::Type& type, c10::TypeKind element) {
  const auto* list = type.castRaw<c10::ListType>();
  return list != nullptr && list->getElementType()->kind() == element;
}

bool fits(const Argument& argument, const c10::Argument& schema) {
  c10::TypePtr type = schema.type();
  const auto optional = type->cast<c10::OptionalType>();
  if (optional) type = optional->getElementType();
  const c10::IValue& constant = argument.constant;
  switch (argument.kind) {
    case Argument::Kind::kTensor:
      return type->kind() == c10::TypeKind::TensorType;
    case Argument::Kind::kTensorList:
      return is_list_of(*type, c10::TypeKind::TensorType);
    case Argument::Kind::kOptionalTensorList:
      return type->str() == "Tensor?[]";
    case Argument::Kind::kConstant:
      break;
  }
  if (constant.isNone()) return optional != nullptr;
  if (constant.isTensor()) return type->kind() == c10::TypeKind::TensorType;
  if (constant.isIntList()) return is_list_of(*type, c10::TypeKind::IntType);
  if (constant.isDoubleList()) return is_list_of(*type, c10::TypeKind::FloatType);
  if (constant.isBoolList()) return is_list_of(*type, c10::TypeKind::BoolType);
  if (type->kind() == c10::TypeKind::AnyType) return constant.isString();  // the name of a group of processes
  if (type->kind() == c10::TypeKind::NumberType) return constant.isInt() || constant.isDouble() || constant.isBool();
  return constant.type()->kind() == type->kind();
}

// A newer library may take more arguments, whose defaults give the earlier behaviour.
void check_arguments(JsonReader& in, Call& call, const std::string& operator_name, const std::string& versions) {
  const auto& schema = call.op.schema().arguments();
  if (call.arguments.size() > schema.size()) {
    in.fail(operator_name + " takes " + std::to_string(schema.size()) + " arguments, there are " +
            std::to_string(call.arguments.size()) + versions);
  }
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    if (fits(call.arguments[i], schema[i])) continue;
    in.fail(operator_name + ": argument " + std::to_string(i) + " should be '" + schema[i].type()->str() + ' ' +
            schema[i].name() + "', is something else" + versions);
  }
  for (std::size_t i = call.arguments.size(); i < schema.size(); ++i) {
    if (!schema[i].default_value()) in.fail(operator_name + " lacks argument '" + schema[i].name() + "'" + versions);
    call.arguments.push_back({.constant = *schema[i].default_value()});
  }
}

struct CallReading {
  const ProgramNames* names;
  std::string operator_name;
  std::vector<Argument> arguments;
  bool grad_mode = false;
};

constexpr JsonField<CallReading> kCallFields[] = {
    {"operator", [](JsonReader& in, CallReading& item) { item.operator_name = in.string(); }, kRequired},
    {"grad_mode", [](JsonReader& in, CallReading& item) { item.grad_mode = in.boolean(); }},
    {"arguments",
     [](JsonReader& in, CallReading& item) {
       in.array([&] { item.arguments.push_back(read_argument(in, *item.names)); });
     },
     kRequired},
};

}  // namespace

std::int64_t read_integer(JsonReader& in, const ProgramNames& names) {
  if (in.at(JsonKind::kInteger)) {
    const std::int64_t number = in.integer();
    if (SizeTable::position(number)) in.fail(std::to_string(number) + " cannot be told from names of other numbers");
    return number;
  }
  ComputedReading item{&names};
  in.object(kComputedFields, item);
  return item.number;
}

ValueId read_value(JsonReader& in, const ProgramNames& names) {
  const std::uint32_t id = in.id();
  if (id >= names.num_values) {
    const char* what = names.num_computed ? "memory" : "value";
    in.fail(std::string(what) + ' ' + std::to_string(id) + " is unknown: `" +
            (names.num_computed ? "memory" : "values") + "` has " + std::to_string(names.num_values) +
            ", and comes first");
  }
  return ValueId{id};
}

std::optional<TensorUse> read_use(JsonReader& in, const ProgramNames& names) {
  if (in.at(JsonKind::kNull)) {
    in.null();
    return std::nullopt;
  }
  TensorUse use;
  std::size_t count = 0;
  in.array([&] {
    if (count == 0) {
      use.value = read_value(in, names);
    } else {
      const std::uint32_t position = in.id();
      if (count > 1 || position >= names.geometries.size()) {
        in.fail(count > 1 ? "expected [value, geometry]"
                          : "geometry " + std::to_string(position) + " is unknown: `geometries` has " +
                                std::to_string(names.geometries.size()) + ", and comes first");
      }
      use.geometry = names.geometries[position];
    }
    ++count;
  });
  if (count != 2) in.fail("expected [value, geometry]");
  return use;
}

std::vector<std::optional<TensorUse>> read_uses(JsonReader& in, const ProgramNames& names) {
  std::vector<std::optional<TensorUse>> uses;
  in.array([&] { uses.push_back(read_use(in, names)); });
  return uses;
}

Call read_call(JsonReader& in, const ProgramNames& names) {
  CallReading item{&names, {}, {}, false};
  in.object(kCallFields, item);
  const std::string versions =
      " (the program was written by torch " + names.torch_version + ", this is torch " + torch_version() + ")";
  const auto found = find_operator(item.operator_name);
  if (!found) {
    in.fail("this libtorch has no operator '" + item.operator_name + "'" + versions +
            "; load the library that registers it, or write the program with this version");
  }
  Call call{*found, std::move(item.arguments), item.grad_mode};
  check_arguments(in, call, item.operator_name, versions);
  return call;
}

std::optional<at::Device> device_from(const std::string& name) {
  try {
    return at::Device(name);
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

at::Tensor tensor_of(const Geometry& geometry, std::string_view bytes) {
  const at::Tensor memory = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
  if (!bytes.empty()) std::memcpy(memory.mutable_data_ptr(), bytes.data(), bytes.size());
  return view_of(memory, geometry);
}

}  // namespace reprise::detail
