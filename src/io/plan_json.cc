// Plans as JSON: docs/formats.md.
#include "io/plan_json.h"

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "io/json_writer.h"
#include "reprise/error.h"
#include "reprise/io.h"

namespace reprise {
namespace {

using detail::append_action;
using detail::append_list;
using detail::JsonField;
using detail::JsonObject;
using detail::JsonReader;
using detail::kRequired;
using detail::read_action;

// "c12", "c12!" or "f7", in exactly the spelling the writer uses.
std::optional<Action> parse_action(std::string_view text) {
  const bool in_place = text.ends_with('!');
  const std::string_view digits = text.substr(text.empty() ? 0 : 1, text.size() - (in_place ? 2 : 1));
  std::uint32_t id = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
  const bool leading_zero = digits.size() > 1 && digits.front() == '0';
  if (error != std::errc{} || end != digits.data() + digits.size() || leading_zero) return std::nullopt;
  if (text.front() == 'c') return Action::compute(op_id(id), in_place);
  if (text.front() == 'f' && !in_place) return Action::free(value_id(id));
  return std::nullopt;
}

std::size_t count(JsonReader& in) { return static_cast<std::size_t>(in.size()); }

constexpr JsonField<PlanFile> kPlanFields[] = {
    {"format", [](JsonReader& in, PlanFile&) { in.format("reprise.plan"); }, kRequired},
    {"version", [](JsonReader& in, PlanFile&) { in.version(2); }, kRequired},
    {"graph", [](JsonReader& in, PlanFile& file) { file.graph = in.string(); }, kRequired},
    {"ops", [](JsonReader& in, PlanFile& file) { file.ops = count(in); }, kRequired},
    {"values", [](JsonReader& in, PlanFile& file) { file.values = count(in); }, kRequired},
    {"planner", [](JsonReader& in, PlanFile& file) { file.planner = in.string(); }, kRequired},
    {"budget_bytes", [](JsonReader& in, PlanFile& file) { file.budget_bytes = in.size(); }, kRequired},
    {"peak_bytes", [](JsonReader& in, PlanFile& file) { file.simulation.peak_bytes = in.size(); }, kRequired},
    {"time_ns", [](JsonReader& in, PlanFile& file) { file.simulation.time_ns = in.size(); }, kRequired},
    {"recompute_ns", [](JsonReader& in, PlanFile& file) { file.simulation.recompute_ns = in.size(); }, kRequired},
    {"actions", [](JsonReader& in, PlanFile& file) { in.array([&] { file.plan.actions.push_back(read_action(in)); }); },
     kRequired},
};

// After the whole file is read: `actions` may come before `ops` and `values`.
void check_ids(const PlanFile& file, std::string_view source) {
  for (std::size_t i = 0; i < file.plan.actions.size(); ++i) {
    const Action action = file.plan.actions[i];
    const std::size_t id = action.computes() ? index(action.op()) : index(action.value());
    const std::size_t limit = action.computes() ? file.ops : file.values;
    if (id < limit) continue;
    throw InputError(std::string(source) + ": actions[" + std::to_string(i) + "]: names " +
                     (action.computes() ? "op " : "value ") + std::to_string(id) + ", but the graph has " +
                     std::to_string(limit));
  }
}

}  // namespace

Action detail::read_action(JsonReader& in) {
  const std::string text = in.string();
  const std::optional<Action> action = parse_action(text);
  if (!action) in.fail("'" + text + "' is not an action; actions are 'c12', 'c12!' and 'f7'");
  return *action;
}

void detail::append_action(std::string& out, Action action) {
  switch (action.kind()) {
    case Action::Kind::kCompute:
      append_number(out += "\"c", index(action.op()));
      break;
    case Action::Kind::kComputeInPlace:
      append_number(out += "\"c", index(action.op()));
      out += '!';
      break;
    case Action::Kind::kFree:
      append_number(out += "\"f", index(action.value()));
      break;
  }
  out += '"';
}

PlanFile parse_plan(std::string_view text, std::string_view source) {
  PlanFile file;
  JsonReader in(text, source);
  in.object(kPlanFields, file);
  check_ids(file, source);
  return file;
}

std::string format_plan(const PlanFile& file) {
  std::string out;
  {
    JsonObject object(out);
    object.line("format", "reprise.plan");
    object.field("version", 2);
    object.line("graph", file.graph);
    object.line("ops", file.ops);
    object.field("values", file.values);
    object.line("planner", file.planner);
    object.line("budget_bytes", file.budget_bytes);
    object.field("peak_bytes", file.simulation.peak_bytes);
    object.field("time_ns", file.simulation.time_ns);
    object.field("recompute_ns", file.simulation.recompute_ns);
    append_list(object.line("actions"), file.plan.actions, [&](Action action) { append_action(out, action); });
    out += '\n';
  }
  return out + '\n';
}

}  // namespace reprise
