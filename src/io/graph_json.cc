// Graphs as JSON: docs/formats.md.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "io/json_reader.h"
#include "io/json_writer.h"
#include "reprise/error.h"
#include "reprise/graph_builder.h"
#include "reprise/io.h"

namespace reprise {
namespace {

using detail::append_json;
using detail::append_list;
using detail::JsonField;
using detail::JsonObject;
using detail::JsonReader;
using detail::kRequired;
using detail::name_of;

constexpr std::pair<std::string_view, Phase> kPhases[] = {
    {"forward", Phase::kForward}, {"caller", Phase::kCaller}, {"backward", Phase::kBackward}};
constexpr std::pair<std::string_view, BackwardReads> kBackwardReads[] = {
    {"inputs", BackwardReads::kInputs}, {"outputs", BackwardReads::kOutputs}, {"both", BackwardReads::kBoth}};

// The contents of a file before the builder sees them: keys may come in any order, so nothing can be checked against
// the rest yet.
struct ValuesPart {
  std::vector<std::int64_t> bytes;
  std::vector<ValueId> resident;
  std::vector<ValueId> arriving;
  std::vector<ValueId> held;
  std::vector<std::pair<ValueId, ValueId>> overwrites;
};

// A version-2 file is a version-1 file with ops on communicators.
constexpr std::int64_t kGraphVersion = 1;
constexpr std::int64_t kGraphVersionWithStreams = 2;

struct GraphFile {
  std::int64_t version = 0;
  std::string name;
  std::vector<std::string> scopes;
  ValuesPart values;
  std::vector<ValueId> outputs;
  std::vector<OpSpec> ops;
};

std::vector<ValueId> value_list(JsonReader& in) {
  std::vector<ValueId> list;
  in.array([&] { list.push_back(value_id(in.id())); });
  return list;
}

std::vector<ValueId> increasing_value_list(JsonReader& in) {
  std::vector<ValueId> list;
  in.array([&] {
    const ValueId value = value_id(in.id());
    if (!list.empty() && value <= list.back()) in.fail("indices must be strictly increasing");
    list.push_back(value);
  });
  return list;
}

std::pair<ValueId, ValueId> value_pair(JsonReader& in) {
  std::vector<ValueId> ids;
  in.array([&] {
    ids.push_back(value_id(in.id()));
    if (ids.size() > 2) in.fail("a pair [new, old] has two indices");
  });
  if (ids.size() < 2) in.fail("expected a pair [new, old]");
  return {ids[0], ids[1]};
}

std::vector<std::pair<ValueId, ValueId>> overwrite_list(JsonReader& in) {
  std::vector<std::pair<ValueId, ValueId>> list;
  in.array([&] {
    const auto pair = value_pair(in);
    if (!list.empty() && pair.first <= list.back().first) in.fail("new values must be strictly increasing");
    list.push_back(pair);
  });
  return list;
}

constexpr JsonField<OpSpec> kOpFields[] = {
    {"name", [](JsonReader& in, OpSpec& op) { op.name = in.string(); }, kRequired},
    {"scope", [](JsonReader& in, OpSpec& op) { op.scope = scope_id(in.id()); }},
    {"phase", [](JsonReader& in, OpSpec& op) { op.phase = in.choice(kPhases); }},
    {"time_ns", [](JsonReader& in, OpSpec& op) { op.time_ns = in.size(); }},
    {"workspace_bytes", [](JsonReader& in, OpSpec& op) { op.workspace_bytes = in.size(); }},
    {"once", [](JsonReader& in, OpSpec& op) { op.once = in.boolean(); }},
    {"stream", [](JsonReader& in, OpSpec& op) { op.stream = in.id(); }},
    {"backward_reads", [](JsonReader& in, OpSpec& op) { op.backward_reads = in.choice(kBackwardReads); }},
    {"inputs", [](JsonReader& in, OpSpec& op) { op.inputs = value_list(in); }},
    {"outputs", [](JsonReader& in, OpSpec& op) { op.outputs = value_list(in); }},
};

constexpr JsonField<ValuesPart> kValuesFields[] = {
    {"bytes", [](JsonReader& in, ValuesPart& part) { in.array([&] { part.bytes.push_back(in.size()); }); }, kRequired},
    {"resident", [](JsonReader& in, ValuesPart& part) { part.resident = increasing_value_list(in); }},
    {"arriving", [](JsonReader& in, ValuesPart& part) { part.arriving = increasing_value_list(in); }},
    {"held", [](JsonReader& in, ValuesPart& part) { part.held = increasing_value_list(in); }},
    {"overwrites", [](JsonReader& in, ValuesPart& part) { part.overwrites = overwrite_list(in); }},
};

constexpr JsonField<GraphFile> kGraphFields[] = {
    {"format", [](JsonReader& in, GraphFile&) { in.format("reprise.graph"); }, kRequired},
    {"version",
     [](JsonReader& in, GraphFile& file) { file.version = in.version(kGraphVersion, kGraphVersionWithStreams); },
     kRequired},
    {"name", [](JsonReader& in, GraphFile& file) { file.name = in.string(); }},
    {"scopes", [](JsonReader& in, GraphFile& file) { in.array([&] { file.scopes.push_back(in.string()); }); }},
    {"values", [](JsonReader& in, GraphFile& file) { in.object(kValuesFields, file.values); }, kRequired},
    {"outputs", [](JsonReader& in, GraphFile& file) { file.outputs = increasing_value_list(in); }},
    {"ops", [](JsonReader& in, GraphFile& file) { in.array([&] { in.object(kOpFields, file.ops.emplace_back()); }); },
     kRequired},
};

void check_below(const std::vector<ValueId>& increasing, std::size_t count, const char* list) {
  if (increasing.empty() || index(increasing.back()) < count) return;
  throw InputError(std::string(list) + ": names unknown value " + std::to_string(index(increasing.back())));
}

void add_values(const ValuesPart& values, GraphBuilder& builder) {
  check_below(values.resident, values.bytes.size(), "resident");
  check_below(values.arriving, values.bytes.size(), "arriving");
  auto resident = values.resident.begin();
  auto arriving = values.arriving.begin();
  for (std::size_t i = 0; i < values.bytes.size(); ++i) {
    const bool is_resident = resident != values.resident.end() && *resident == value_id(i);
    const bool is_arriving = arriving != values.arriving.end() && *arriving == value_id(i);
    if (is_resident && is_arriving) {
      throw InputError("value " + std::to_string(i) + " is both resident and arriving");
    }
    if (is_resident) {
      builder.resident(values.bytes[i]);
      ++resident;
    } else if (is_arriving) {
      builder.arriving(values.bytes[i]);
      ++arriving;
    } else {
      builder.value(values.bytes[i]);
    }
  }
  for (const ValueId value : values.held) builder.hold(value);
  for (const auto& [new_value, old_value] : values.overwrites) builder.overwrite(new_value, old_value);
}

void check_version(const GraphFile& file) {
  const auto on_device = [](const OpSpec& op) { return op.stream == 0; };
  const bool streams = !std::ranges::all_of(file.ops, on_device);
  if (streams == (file.version == kGraphVersionWithStreams)) return;
  throw InputError(streams ? "version 1 has no ops on communicators; version 2 does"
                           : "version 2 has ops on communicators, but no op has a stream above 0");
}

CostedGraph build(GraphFile file) {
  check_version(file);
  GraphBuilder builder(std::move(file.name));
  for (std::string& scope : file.scopes) builder.scope(std::move(scope));
  add_values(file.values, builder);
  for (OpSpec& op : file.ops) builder.op(std::move(op));
  for (const ValueId value : file.outputs) builder.output(value);
  return builder.build();
}

template <typename Select>
std::vector<ValueId> values_where(const Graph& graph, Select select) {
  std::vector<ValueId> selected;
  for (std::size_t i = 0; i < graph.num_values(); ++i) {
    if (select(value_id(i))) selected.push_back(value_id(i));
  }
  return selected;
}

void append_values(std::string& out, const Graph& graph, const Costs& costs) {
  JsonObject values(out);
  values.line("bytes", costs.value_bytes);
  values.line("resident", values_where(graph, [&](ValueId v) { return graph.residence(v) == Residence::kResident; }));
  values.line("arriving", values_where(graph, [&](ValueId v) { return graph.residence(v) == Residence::kArriving; }));
  values.line("held", values_where(graph, [&](ValueId v) { return graph.held(v); }));
  append_list(values.line("overwrites"),
              values_where(graph, [&](ValueId v) { return graph.overwrites(v) != kNoValue; }), [&](ValueId v) {
                append_json(out, std::array{v, graph.overwrites(v)});
              });
}

void append_op(std::string& out, const Graph& graph, const Costs& costs, OpId op) {
  JsonObject object(out);
  const Phase phase = graph.phase(op);
  const BackwardReads reads = graph.backward_reads(op);
  object.field("name", graph.op_name(op));
  object.unless("scope", graph.scope(op), kNoScope);
  if (phase != Phase::kForward) object.field("phase", name_of(kPhases, phase));
  object.unless("time_ns", costs.time_ns[index(op)], 0);
  object.unless("workspace_bytes", costs.workspace_bytes[index(op)], 0);
  object.unless("once", graph.once(op) && phase != Phase::kCaller, false);
  object.unless("stream", graph.stream(op), 0U);
  if (reads != BackwardReads::kInputs) object.field("backward_reads", name_of(kBackwardReads, reads));
  object.unless_empty("inputs", graph.inputs(op));
  object.unless_empty("outputs", graph.outputs(op));
}

}  // namespace

CostedGraph parse_graph(std::string_view text, std::string_view source) {
  GraphFile file;
  JsonReader in(text, source);
  in.object(kGraphFields, file);
  try {
    return build(std::move(file));
  } catch (const InputError& error) {
    throw InputError(std::string(source) + ": " + error.what());
  }
}

std::string format_graph(const Graph& graph, const Costs& costs) {
  check_costs(graph, costs);
  std::string out;
  {
    JsonObject file(out);
    file.line("format", "reprise.graph");
    file.field("version", graph.num_communicators() > 0 ? kGraphVersionWithStreams : kGraphVersion);
    file.line("name", graph.name());
    file.line("scopes", graph.scopes());
    append_values(file.line("values"), graph, costs);
    file.line("outputs", graph.step_outputs());
    file.line("ops") += "[\n";
    for (std::size_t i = 0; i < graph.num_ops(); ++i) {
      if (i > 0) out += ",\n";
      append_op(out, graph, costs, op_id(i));
    }
    out += graph.num_ops() > 0 ? "\n]\n" : "]\n";
  }
  return out + '\n';
}

}  // namespace reprise
