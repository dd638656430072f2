// Text to training steps: docs/formats.md. What is named by its position must come before its first use; each such name
// is checked where it is read, so that an error has a place in the text. Rules about the whole program are checked at
// the end (program_check.h).
#include <algorithm>
#include <cstring>
#include <utility>

#include "io/json_reader.h"
#include "reprise/error.h"
#include "runtime/files/program_arguments.h"
#include "runtime/files/program_io.h"
#include "runtime/files/program_parts.h"
#include "runtime/files/program_text.h"
#include "runtime/program/program_check.h"

namespace reprise {
namespace {

using detail::JsonField;
using detail::JsonReader;
using detail::kRequired;
using detail::ProgramNames;
using detail::read_call;
using detail::read_use;
using detail::read_uses;
using detail::read_value;

using Uses = std::vector<std::optional<TensorUse>>;

struct Reading {
  std::int64_t version = 0;
  StepProgram step;
  ProgramNames names;

  [[nodiscard]] Program& program() { return *step.program; }
};

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

constexpr JsonField<NamedUse> kNamedUseFields[] = {
    {"use", [](JsonReader& in, NamedUse& item) { item.use = read_use(in, item.file->names); }, kRequired},
    {"state", [](JsonReader& in,
                 NamedUse& item) { item.state = detail::read_state_position(in, item.file->step.state_names.size()); }},
    {"batch", [](JsonReader& in, NamedUse& item) { item.batch = detail::read_batch_position(in); }},
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

// Ops.

struct OpReading {
  Reading* file;
  ProgramOp op;
};

std::vector<ValueId> read_values(JsonReader& in, const ProgramNames& names) {
  std::vector<ValueId> ids;
  in.array([&] { ids.push_back(read_value(in, names)); });
  return ids;
}

constexpr JsonField<OpReading> kOpFields[] = {
    {"name", [](JsonReader& in, OpReading& item) { item.op.name = in.string(); }, kRequired},
    {"kind", [](JsonReader& in, OpReading& item) { item.op.kind = in.choice(detail::kOpKinds); }},
    {"scope", [](JsonReader& in, OpReading& item) { item.op.scope = detail::read_scope(in, item.file->names); }},
    {"phase", [](JsonReader& in, OpReading& item) { item.op.phase = in.choice(detail::kPhases); }},
    {"once", [](JsonReader& in, OpReading& item) { item.op.once = in.boolean(); }},
    {"stream", [](JsonReader& in, OpReading& item) { item.op.stream = in.id(); }},
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
    {"version",
     [](JsonReader& in, Reading& file) {
       file.version = in.version(detail::kProgramVersion, detail::kProgramVersionWithStreams);
     },
     kRequired},
    {"torch", [](JsonReader& in, Reading& file) { file.names.torch_version = in.string(); }, kRequired},
    {"device", [](JsonReader& in, Reading& file) { file.program().device = detail::read_device(in); }, kRequired},
    {"name", [](JsonReader& in, Reading& file) { file.program().name = in.string(); }, kRequired},
    {"state", [](JsonReader& in, Reading& file) { file.step.state_names = detail::read_state_names(in); }, kRequired},
    {"scopes", [](JsonReader& in, Reading& file) { in.array([&] { file.names.scopes.push_back(in.string()); }); },
     kRequired},
    {"geometries", [](JsonReader& in, Reading& file) { detail::read_geometries(in, file.names); }, kRequired},
    {"values", [](JsonReader& in, Reading& file) { in.object(kValueFields, file); }, kRequired},
    {"inputs", read_inputs, kRequired},
    {"gradients", read_gradients, kRequired},
    {"forward_outputs",
     [](JsonReader& in, Reading& file) { file.program().forward_outputs = read_uses(in, file.names); }, kRequired},
    {"seeds", [](JsonReader& in, Reading& file) { file.program().seeds = read_uses(in, file.names); }, kRequired},
    {"new_contents", [](JsonReader& in, Reading& file) { file.program().new_contents = read_values(in, file.names); },
     kRequired},
    {"constants",
     [](JsonReader& in, Reading& file) { file.program().constants = detail::read_constants(in, file.names); },
     kRequired},
    {"ops", read_ops, kRequired},
};

}  // namespace

StepProgram parse_program(std::string_view text, const std::string& source) {
  Reading file;
  file.step.program = std::make_shared<Program>();
  JsonReader in(text, source);
  in.object(kFields, file);
  const bool streams = std::ranges::any_of(file.program().ops, [](const ProgramOp& op) { return op.stream != 0; });
  if (streams != (file.version == detail::kProgramVersionWithStreams)) {
    throw InputError(source + (streams ? ": version 1 has no ops on communicators; version 2 does"
                                       : ": version 2 has ops on communicators, but no op has a stream above 0"));
  }
  detail::check_program(file.step, source);
  return std::move(file.step);
}

}  // namespace reprise
