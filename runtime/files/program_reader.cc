// Text to training steps: docs/formats.md. What is named by its position must come before its first use; each such name
// is checked where it is read, so that an error has a place in the text. Rules about the whole program are checked at
// the end (program_check.h).
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/ScalarOps.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "io/json_reader.h"
#include "reprise/error.h"
#include "runtime/files/program_arguments.h"
#include "runtime/files/program_io.h"
#include "runtime/files/program_text.h"
#include "runtime/program/program_check.h"

namespace reprise {
namespace {

using detail::JsonField;
using detail::JsonKind;
using detail::JsonReader;
using detail::kRequired;
using detail::ProgramNames;
using detail::read_call;
using detail::read_use;
using detail::read_uses;
using detail::read_value;

using Uses = std::vector<std::optional<TensorUse>>;

struct Reading {
  StepProgram step;
  ProgramNames names;
  std::vector<std::string> scopes;

  [[nodiscard]] Program& program() { return *step.program; }
};

void read_device(JsonReader& in, Reading& file) {
  const std::string name = in.string();
  const auto device = detail::device_from(name);
  if (!device) in.fail("'" + name + "' is not a device; devices are 'cpu' and 'cuda:0'");
  const bool is_there =
      device->is_cpu() || (device->is_cuda() && at::hasCUDA() && device->index() < static_cast<int>(at::getNumGPUs()));
  if (!is_there) {
    in.fail("the program was captured for " + name +
            ", which this machine or this libtorch does not have, and does not run " +
            "on another device; capture it again with the model on the device it shall run on");
  }
  file.program().device = *device;
}

void read_state(JsonReader& in, Reading& file) {
  std::unordered_set<std::string> seen;
  in.array([&] {
    std::string name = in.string();
    if (!seen.insert(name).second) in.fail("'" + name + "' comes twice");
    file.step.state_names.push_back(std::move(name));
  });
}

// Geometries.

constexpr JsonField<Geometry> kGeometryFields[] = {
    {"dtype",
     [](JsonReader& in, Geometry& geometry) {
       const std::string name = in.string();
       const auto dtype = detail::dtype_from(name);
       if (!dtype) in.fail("'" + name + "' is not a type of elements that this reader knows");
       geometry.dtype = *dtype;
     },
     kRequired},
    {"sizes", [](JsonReader& in, Geometry& g) { in.array([&] { g.sizes.push_back(in.size()); }); }, kRequired},
    {"strides", [](JsonReader& in, Geometry& g) { in.array([&] { g.strides.push_back(in.size()); }); }, kRequired},
    {"offset", [](JsonReader& in, Geometry& geometry) { geometry.offset = in.size(); }},
    {"conj", [](JsonReader& in, Geometry& geometry) { geometry.conj = in.boolean(); }},
    {"neg", [](JsonReader& in, Geometry& geometry) { geometry.neg = in.boolean(); }},
};

// The bytes up to its last element, and the number of its elements, stay below this.
constexpr std::int64_t kMostElements = std::int64_t{1} << 54;
constexpr std::size_t kMostDimensions = 25;  // the most that kernels accept

bool is_too_large(const Geometry& geometry) {
  std::int64_t last = geometry.offset;
  std::int64_t count = 1;
  bool too_large = last >= kMostElements;
  for (std::size_t i = 0; i < geometry.sizes.size() && !too_large; ++i) {
    const std::int64_t steps = std::max<std::int64_t>(geometry.sizes[i], 1) - 1;
    std::int64_t reach = 0;
    too_large = __builtin_mul_overflow(steps, geometry.strides[i], &reach) ||
                __builtin_add_overflow(last, reach, &last) ||
                __builtin_mul_overflow(count, std::max<std::int64_t>(geometry.sizes[i], 1), &count) ||
                last >= kMostElements || count >= kMostElements;
  }
  return too_large;
}

void read_geometries(JsonReader& in, Reading& file) {
  in.array([&] {
    Geometry geometry;
    in.object(kGeometryFields, geometry);
    if (geometry.sizes.size() != geometry.strides.size()) in.fail("as many sizes as strides are needed");
    if (geometry.sizes.size() > kMostDimensions) in.fail("more than 25 dimensions");
    if (is_too_large(geometry)) in.fail("reaches over 2^54 elements");
    file.names.geometries.push_back(std::move(geometry));
  });
}

// Values.

void read_bytes(JsonReader& in, Reading& file) {
  in.array([&] { file.program().values.push_back({.bytes = in.size()}); });
  file.names.num_values = file.program().values.size();
}

template <typename Apply>
void read_those(JsonReader& in, Reading& file, Apply apply) {
  in.array([&] { apply(file.program().values[index(read_value(in, file.names))]); });
}

constexpr JsonField<Reading> kValueFields[] = {
    {"bytes", read_bytes, kRequired},
    {"resident",
     [](JsonReader& in, Reading& file) {
       read_those(in, file, [](ProgramValue& value) { value.residence = Residence::kResident; });
     }},
    {"arriving",
     [](JsonReader& in, Reading& file) {
       read_those(in, file, [&](ProgramValue& value) {
         if (value.residence == Residence::kResident) in.fail("resident and arriving at once");
         value.residence = Residence::kArriving;
       });
     }},
    {"held", [](JsonReader& in, Reading& file) { read_those(in, file, [](ProgramValue& v) { v.held = true; }); }},
    {"overwrites",
     [](JsonReader& in, Reading& file) {
       in.array([&] {
         std::vector<ValueId> pair;
         in.array([&] { pair.push_back(read_value(in, file.names)); });
         if (pair.size() != 2) in.fail("expected [new, old]");
         ValueId& old = file.program().values[index(pair[0])].overwrites;
         if (old != kNoValue) in.fail("value " + std::to_string(index(pair[0])) + " overwrites two values");
         old = pair[1];
       });
     }},
};

// What goes in and out.

struct NamedUse {
  Reading* file;
  std::optional<TensorUse> use;
  std::optional<std::int32_t> state;
  std::optional<std::int32_t> batch;
};

constexpr std::uint32_t kMostBatch = 65535;

constexpr JsonField<NamedUse> kNamedUseFields[] = {
    {"use", [](JsonReader& in, NamedUse& item) { item.use = read_use(in, item.file->names); }, kRequired},
    {"state",
     [](JsonReader& in, NamedUse& item) {
       const std::uint32_t position = in.id();
       const std::size_t count = item.file->step.state_names.size();
       if (position >= count) in.fail("`state` has " + std::to_string(count) + " names, and comes before");
       item.state = static_cast<std::int32_t>(position);
     }},
    {"batch",
     [](JsonReader& in, NamedUse& item) {
       const std::uint32_t position = in.id();
       if (position > kMostBatch) in.fail("a batch cannot have so many tensors");
       item.batch = static_cast<std::int32_t>(position);
     }},
};

void read_inputs(JsonReader& in, Reading& file) {
  in.array([&] {
    NamedUse item{&file};
    in.object(kNamedUseFields, item);
    if (item.state.has_value() == item.batch.has_value()) in.fail("an input needs a `state` or a `batch`");
    file.program().inputs.push_back(std::move(item.use));
    file.step.inputs.push_back(item.state ? -(*item.state + 1) : *item.batch);
  });
}

void read_gradients(JsonReader& in, Reading& file) {
  in.array([&] {
    NamedUse item{&file};
    in.object(kNamedUseFields, item);
    if (item.batch) in.fail("a gradient has no `batch`");
    file.program().gradients.push_back(std::move(item.use));
    file.step.gradients.push_back(item.state.value_or(-1));
  });
}

struct ConstantReading {
  Reading* file;
  std::optional<TensorUse> use;
  std::string bytes;
};

constexpr JsonField<ConstantReading> kConstantFields[] = {
    {"use", [](JsonReader& in, ConstantReading& item) { item.use = read_use(in, item.file->names); }, kRequired},
    {"bytes",
     [](JsonReader& in, ConstantReading& item) {
       auto bytes = detail::bytes_from(in.string());
       if (!bytes) in.fail("not a text in base 64");
       item.bytes = std::move(*bytes);
     },
     kRequired},
};

void read_constants(JsonReader& in, Reading& file) {
  in.array([&] {
    ConstantReading item{&file};
    in.object(kConstantFields, item);
    if (!item.use) in.fail("a constant has a value");
    const Geometry& geometry = item.use->geometry;
    if (extent_bytes(geometry) > static_cast<std::int64_t>(item.bytes.size())) {
      in.fail(to_string(geometry) + " needs " + std::to_string(extent_bytes(geometry)) + " bytes, there are " +
              std::to_string(item.bytes.size()));
    }
    if (geometry.conj || geometry.neg) in.fail("a constant is neither conjugate nor negative");
    file.program().constants.emplace_back(item.use->value, detail::tensor_of(geometry, item.bytes));
  });
}

// Ops.

struct OpReading {
  Reading* file;
  ProgramOp op;
};

void read_scope(JsonReader& in, OpReading& item) {
  const std::uint32_t position = in.id();
  if (position >= item.file->scopes.size()) {
    in.fail("`scopes` has " + std::to_string(item.file->scopes.size()) + " names, and comes before");
  }
  item.op.scope = item.file->scopes[position];
}

std::vector<ValueId> read_values(JsonReader& in, const ProgramNames& names) {
  std::vector<ValueId> ids;
  in.array([&] { ids.push_back(read_value(in, names)); });
  return ids;
}

constexpr JsonField<OpReading> kOpFields[] = {
    {"name", [](JsonReader& in, OpReading& item) { item.op.name = in.string(); }, kRequired},
    {"kind", [](JsonReader& in, OpReading& item) { item.op.kind = in.choice(detail::kOpKinds); }},
    {"scope", read_scope},
    {"phase", [](JsonReader& in, OpReading& item) { item.op.phase = in.choice(detail::kPhases); }},
    {"once", [](JsonReader& in, OpReading& item) { item.op.once = in.boolean(); }},
    {"mutates", [](JsonReader& in, OpReading& item) { item.op.mutates = in.boolean(); }},
    {"expected", [](JsonReader& in, OpReading& item) { item.op.expected = in.boolean(); }},
    {"workspace_bytes", [](JsonReader& in, OpReading& item) { item.op.workspace_bytes = in.size(); }},
    {"call", [](JsonReader& in, OpReading& item) { item.op.call = read_call(in, item.file->names); }},
    {"first_call", [](JsonReader& in, OpReading& item) { item.op.first_call = read_call(in, item.file->names); }},
    {"in_place_call", [](JsonReader& in, OpReading& item) { item.op.in_place_call = read_call(in, item.file->names); }},
    {"outputs", [](JsonReader& in, OpReading& item) { item.op.outputs = read_uses(in, item.file->names); }},
    {"generator_state",
     [](JsonReader& in, OpReading& item) { item.op.generator_state = read_value(in, item.file->names); }},
    {"added_seed", [](JsonReader& in, OpReading& item) { item.op.added_seed = read_value(in, item.file->names); }},
    {"added_to", [](JsonReader& in, OpReading& item) { item.op.added_to = read_value(in, item.file->names); }},
    {"also_reads", [](JsonReader& in, OpReading& item) { item.op.also_reads = read_values(in, item.file->names); }},
    {"also_makes", [](JsonReader& in, OpReading& item) { item.op.also_makes = read_values(in, item.file->names); }},
};

// A number in the place of a tensor is a tensor of its own. The calls of one op share theirs, as in a step that was
// captured, so that a program takes the same memory however it was made.
void share_numbers(ProgramOp& op) {
  std::vector<c10::IValue> numbers;
  const auto is_same = [](const at::Tensor& a, const at::Tensor& b) {
    return a.scalar_type() == b.scalar_type() &&
           std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.element_size()) == 0;
  };
  for (auto* call : {&op.call, &op.first_call, &op.in_place_call}) {
    if (!*call) continue;
    for (Argument& argument : (*call)->arguments) {
      if (!argument.constant.isTensor() || !argument.constant.toTensor().defined()) continue;
      const auto known = std::ranges::find_if(
          numbers, [&](const c10::IValue& number) { return is_same(number.toTensor(), argument.constant.toTensor()); });
      if (known == numbers.end()) {
        numbers.push_back(argument.constant);
      } else {
        argument.constant = *known;
      }
    }
  }
}

void read_ops(JsonReader& in, Reading& file) {
  in.array([&] {
    OpReading item{&file, {}};
    in.object(kOpFields, item);
    share_numbers(item.op);
    file.program().ops.push_back(std::move(item.op));
  });
}

constexpr JsonField<Reading> kFields[] = {
    {"format", [](JsonReader& in, Reading&) { in.format(detail::kProgramFormat); }, kRequired},
    {"version", [](JsonReader& in, Reading&) { in.version(detail::kProgramVersion); }, kRequired},
    {"torch", [](JsonReader& in, Reading& file) { file.names.torch_version = in.string(); }, kRequired},
    {"device", read_device, kRequired},
    {"name", [](JsonReader& in, Reading& file) { file.program().name = in.string(); }, kRequired},
    {"state", read_state, kRequired},
    {"scopes", [](JsonReader& in, Reading& file) { in.array([&] { file.scopes.push_back(in.string()); }); }, kRequired},
    {"geometries", read_geometries, kRequired},
    {"values", [](JsonReader& in, Reading& file) { in.object(kValueFields, file); }, kRequired},
    {"inputs", read_inputs, kRequired},
    {"gradients", read_gradients, kRequired},
    {"forward_outputs",
     [](JsonReader& in, Reading& file) { file.program().forward_outputs = read_uses(in, file.names); }, kRequired},
    {"seeds", [](JsonReader& in, Reading& file) { file.program().seeds = read_uses(in, file.names); }, kRequired},
    {"new_contents", [](JsonReader& in, Reading& file) { file.program().new_contents = read_values(in, file.names); },
     kRequired},
    {"constants", read_constants, kRequired},
    {"ops", read_ops, kRequired},
};

}  // namespace

StepProgram parse_program(std::string_view text, const std::string& source) {
  Reading file;
  file.step.program = std::make_shared<Program>();
  JsonReader in(text, source);
  in.object(kFields, file);
  detail::check_program(file.step, source);
  return std::move(file.step);
}

}  // namespace reprise
