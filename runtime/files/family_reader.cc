// Text to training steps of any size: docs/formats.md. As in programs, what is named by its position comes before its
// first use, and is checked where it is read.
#include <memory>
#include <utility>

#include "io/json_reader.h"
#include "reprise/error.h"
#include "runtime/files/family_io.h"
#include "runtime/files/program_arguments.h"
#include "runtime/files/program_parts.h"
#include "runtime/files/program_text.h"
#include "runtime/program/family/told_check.h"

namespace reprise {
namespace {

using detail::JsonField;
using detail::JsonKind;
using detail::JsonReader;
using detail::kRequired;
using detail::ProgramNames;
using Origin = ToldStep::Origin;

struct FamilyReading {
  ToldStep told;
  StepFamily step;
  ProgramNames names;
};

// Throws what `act` finds wrong at the place in the text.
template <typename Act>
auto here(JsonReader& in, Act act) {
  try {
    return act();
  } catch (const InputError& error) {
    in.fail(error.what());
  }
}

// Sizes.

struct SymbolReading {
  StepFamily::Symbol symbol{};
  SizeLimits::Range range{};
};

constexpr std::int64_t kMostDimension = 63;

constexpr JsonField<SymbolReading> kSymbolFields[] = {
    {"batch", [](JsonReader& in, SymbolReading& item) { item.symbol.batch = detail::read_batch_position(in); },
     kRequired},
    {"dimension",
     [](JsonReader& in, SymbolReading& item) {
       const std::int64_t dimension = in.size();
       if (dimension > kMostDimension) in.fail("a tensor cannot have so many dimensions");
       item.symbol.dimension = static_cast<std::int32_t>(dimension);
     },
     kRequired},
    {"here", [](JsonReader& in, SymbolReading& item) { item.symbol.here = in.size(); }, kRequired},
    {"least", [](JsonReader& in, SymbolReading& item) { item.range.least = in.size(); }},
    {"most", [](JsonReader& in, SymbolReading& item) { item.range.most = in.size(); }},
};

void read_symbols(JsonReader& in, FamilyReading& file) {
  in.array([&] {
    SymbolReading item;
    in.object(kSymbolFields, item);
    file.step.symbols.push_back(item.symbol);
    file.step.limits.ranges.push_back(item.range);
  });
  if (file.step.symbols.empty()) in.fail("a step of any size has a size that varies");
  file.told.num_symbols = file.step.symbols.size();
}

constexpr JsonField<std::int64_t> kSymbolUseFields[] = {
    {"symbol", [](JsonReader& in, std::int64_t& symbol) { symbol = in.size(); }, kRequired},
};

SizeTable::Instruction read_instruction(JsonReader& in) {
  if (in.at(JsonKind::kInteger)) return {SizeTable::Code::kConstant, in.integer()};
  if (in.at(JsonKind::kString)) {
    const auto code = in.choice(kSizeCodes);
    const bool is_operand = code == SizeTable::Code::kConstant || code == SizeTable::Code::kSymbol;
    if (is_operand) in.fail("a constant is a number, and a symbol an object with its position");
    return {code};
  }
  std::int64_t symbol = 0;
  in.object(kSymbolUseFields, symbol);
  return {SizeTable::Code::kSymbol, symbol};
}

// An expression over the symbols.
SizeTable::Expression read_expression(JsonReader& in, const FamilyReading& file) {
  SizeTable::Expression expression;
  in.array([&] { expression.push_back(read_instruction(in)); });
  here(in, [&] { SizeTable::check(expression, file.told.num_symbols); });
  return expression;
}

void read_computed(JsonReader& in, FamilyReading& file) {
  in.array([&] {
    SizeTable::Expression expression = read_expression(in, file);
    here(in, [&] { static_cast<void>(file.told.sizes.add(std::move(expression), file.told.num_symbols)); });
  });
  file.names.num_computed = file.told.sizes.expressions().size();
}

// Memory.

struct ElsewhereReading {
  FamilyReading* file;
  ToldStep::Memory* memory = nullptr;
};

ToldStep::Memory& read_memory_name(JsonReader& in, FamilyReading& file) {
  return file.told.memory[index(detail::read_value(in, file.names))];
}

constexpr JsonField<ElsewhereReading> kElsewhereFields[] = {
    {"memory", [](JsonReader& in, ElsewhereReading& item) { item.memory = &read_memory_name(in, *item.file); },
     kRequired},
    {"device",
     [](JsonReader& in, ElsewhereReading& item) {
       const std::string name = in.string();
       const auto device = detail::device_from(name);
       if (!device || item.memory == nullptr)
         in.fail("'" + name + "' is not the device of `memory`, which comes first");
       item.memory->device = *device;
     },
     kRequired},
};

constexpr JsonField<FamilyReading> kMemoryFields[] = {
    {"bytes",
     [](JsonReader& in, FamilyReading& file) {
       in.array([&] {
         const std::int64_t bytes = in.at(JsonKind::kInteger) ? in.size() : detail::read_integer(in, file.names);
         file.told.memory.push_back({Origin::kMade, bytes, file.told.device});
       });
       file.names.num_values = file.told.memory.size();
     },
     kRequired},
    {"resident", [](JsonReader& in,
                    FamilyReading& file) { in.array([&] { read_memory_name(in, file).origin = Origin::kResident; }); }},
    {"seeds",
     [](JsonReader& in, FamilyReading& file) { in.array([&] { read_memory_name(in, file).origin = Origin::kSeed; }); }},
    {"elsewhere",
     [](JsonReader& in, FamilyReading& file) {
       in.array([&] {
         ElsewhereReading item{&file};
         in.object(kElsewhereFields, item);
       });
     }},
};

// What goes in and out.

struct InputReading {
  FamilyReading* file;
  std::optional<TensorUse> use{};
  std::optional<std::int32_t> state{};
  std::optional<std::int32_t> batch{};
};

constexpr JsonField<InputReading> kInputFields[] = {
    {"use", [](JsonReader& in, InputReading& item) { item.use = detail::read_use(in, item.file->names); }, kRequired},
    {"state",
     [](JsonReader& in, InputReading& item) {
       item.state = detail::read_state_position(in, item.file->step.state_names.size());
     }},
    {"batch", [](JsonReader& in, InputReading& item) { item.batch = detail::read_batch_position(in); }},
};

void read_inputs(JsonReader& in, FamilyReading& file) {
  in.array([&] {
    InputReading item{&file};
    in.object(kInputFields, item);
    if (!item.use || item.state.has_value() == item.batch.has_value()) {
      in.fail("an input is a tensor, and needs a `state` or a `batch`");
    }
    file.told.inputs.push_back(std::move(item.use));
    file.step.inputs.push_back(item.state ? -(*item.state + 1) : *item.batch);
  });
}

struct GradientReading {
  FamilyReading* file;
  std::optional<TensorUse> use{};
  ProgramBuilder::Gradient gradient{};
  std::int32_t state = -1;
};

constexpr JsonField<GradientReading> kGradientFields[] = {
    {"use", [](JsonReader& in, GradientReading& item) { item.use = detail::read_use(in, item.file->names); },
     kRequired},
    {"state",
     [](JsonReader& in, GradientReading& item) {
       item.state = detail::read_state_position(in, item.file->step.state_names.size());
     }},
    {"variable",
     [](JsonReader& in, GradientReading& item) {
       const auto& known = item.file->names.geometries;
       const std::uint32_t position = in.id();
       if (position >= known.size()) in.fail("`geometries` has " + std::to_string(known.size()) + ", and comes first");
       item.gradient.variable = known[position];
     }},
    {"name", [](JsonReader& in, GradientReading& item) { item.gradient.name = in.string(); }},
    {"scope",
     [](JsonReader& in, GradientReading& item) { item.gradient.scope = detail::read_scope(in, item.file->names); }},
};

void read_gradients(JsonReader& in, FamilyReading& file) {
  in.array([&] {
    GradientReading item{&file};
    in.object(kGradientFields, item);
    file.step.gradients.push_back(item.state);
    file.told.gradients.emplace_back();
    if (!item.use) return;
    item.gradient.use = *std::move(item.use);
    file.told.gradients.back() = std::move(item.gradient);
  });
}

// Calls.

struct CallReading {
  FamilyReading* file;
  std::string name{};
  std::string scope{};
  bool once = false;
  std::optional<Call> call{};
  Uses outputs{};
};

constexpr JsonField<CallReading> kCallFields[] = {
    {"name", [](JsonReader& in, CallReading& item) { item.name = in.string(); }, kRequired},
    {"scope", [](JsonReader& in, CallReading& item) { item.scope = detail::read_scope(in, item.file->names); }},
    {"once", [](JsonReader& in, CallReading& item) { item.once = in.boolean(); }},
    {"call", [](JsonReader& in, CallReading& item) { item.call = detail::read_call(in, item.file->names); }, kRequired},
    {"outputs", [](JsonReader& in, CallReading& item) { item.outputs = detail::read_uses(in, item.file->names); }},
};

void read_calls(JsonReader& in, FamilyReading& file, std::vector<ProgramBuilder::SeenCall>& calls) {
  in.array([&] {
    CallReading item{&file};
    in.object(kCallFields, item);
    CallFacts facts = facts_of(*item.call);
    if (!facts.refusal.empty()) in.fail(item.name + ": " + facts.refusal);
    calls.push_back({.name = std::move(item.name),
                     .scope = std::move(item.scope),
                     .call = *std::move(item.call),
                     .facts = std::move(facts),
                     .repeats = !item.once,
                     .results = std::move(item.outputs)});
  });
}

constexpr JsonField<FamilyReading> kFamilyFields[] = {
    {"format", [](JsonReader& in, FamilyReading&) { in.format(detail::kFamilyFormat); }, kRequired},
    {"version", [](JsonReader& in, FamilyReading&) { in.version(detail::kFamilyVersion); }, kRequired},
    {"torch", [](JsonReader& in, FamilyReading& file) { file.names.torch_version = in.string(); }, kRequired},
    {"device", [](JsonReader& in, FamilyReading& file) { file.told.device = detail::read_device(in); }, kRequired},
    {"name", [](JsonReader& in, FamilyReading& file) { file.told.name = in.string(); }, kRequired},
    {"state", [](JsonReader& in, FamilyReading& file) { file.step.state_names = detail::read_state_names(in); },
     kRequired},
    {"symbols", read_symbols, kRequired},
    {"conditions",
     [](JsonReader& in, FamilyReading& file) {
       in.array([&] { file.step.limits.conditions.push_back(read_expression(in, file)); });
     },
     kRequired},
    {"computed", read_computed, kRequired},
    {"scopes", [](JsonReader& in, FamilyReading& file) { in.array([&] { file.names.scopes.push_back(in.string()); }); },
     kRequired},
    {"geometries", [](JsonReader& in, FamilyReading& file) { detail::read_geometries(in, file.names); }, kRequired},
    {"memory", [](JsonReader& in, FamilyReading& file) { in.object(kMemoryFields, file); }, kRequired},
    {"inputs", read_inputs, kRequired},
    {"constants",
     [](JsonReader& in, FamilyReading& file) { file.told.constants = detail::read_constants(in, file.names); },
     kRequired},
    {"forward", [](JsonReader& in, FamilyReading& file) { read_calls(in, file, file.told.forward); }, kRequired},
    {"outputs", [](JsonReader& in, FamilyReading& file) { file.told.outputs = detail::read_uses(in, file.names); },
     kRequired},
    {"seeds", [](JsonReader& in, FamilyReading& file) { file.told.seeds = detail::read_uses(in, file.names); },
     kRequired},
    {"backward", [](JsonReader& in, FamilyReading& file) { read_calls(in, file, file.told.backward); }, kRequired},
    {"gradients", read_gradients, kRequired},
    {"split", [](JsonReader& in, FamilyReading& file) { file.told.split = in.boolean(); }},
};

}  // namespace

StepFamily parse_family(std::string_view text, const std::string& source) {
  FamilyReading file;
  file.names.num_computed = 0;
  JsonReader in(text, source);
  in.object(kFamilyFields, file);
  detail::check_told(file.told, source);
  file.step.program = std::make_shared<const ProgramFamily>(std::move(file.told));
  return std::move(file.step);
}

bool is_family(std::string_view text) {
  const std::string name = '"' + std::string(detail::kFamilyFormat) + '"';
  return text.substr(0, text.find(',')).find(name) != std::string_view::npos;
}

}  // namespace reprise
