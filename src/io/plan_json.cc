// Plans as JSON: docs/formats.md.
#include "io/plan_json.h"

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "io/json_writer.h"
#include "reprise/error.h"
#include "reprise/io.h"

namespace reprise {
namespace {

using detail::append_action;
using detail::append_list;
using detail::append_number;
using detail::JsonField;
using detail::JsonKind;
using detail::JsonObject;
using detail::JsonReader;
using detail::kRequired;
using detail::read_action;

// "c12", "c12!", "f7", "s7" or "b7", in exactly the spelling the writer uses.
std::optional<Action> parse_action(std::string_view text) {
  const bool in_place = text.ends_with('!');
  const std::string_view digits = text.substr(text.empty() ? 0 : 1, text.size() - (in_place ? 2 : 1));
  std::uint32_t id = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
  const bool leading_zero = digits.size() > 1 && digits.front() == '0';
  if (error != std::errc{} || end != digits.data() + digits.size() || leading_zero) return std::nullopt;
  if (text.front() == 'c') return Action::compute(op_id(id), in_place);
  if (in_place) return std::nullopt;
  if (text.front() == 'f') return Action::free(value_id(id));
  if (text.front() == 's') return Action::store(value_id(id));
  if (text.front() == 'b') return Action::fetch(value_id(id));
  return std::nullopt;
}

std::size_t count(JsonReader& in) { return static_cast<std::size_t>(in.size()); }

// A version-3 file is a version-2 file that also has an arena. A version-4 file has a link, and perhaps an arena. A
// version-5 file says for how long the device waits for communicators, and may have both.
constexpr std::int64_t kVersion = 2;
constexpr std::int64_t kVersionWithArena = 3;
constexpr std::int64_t kVersionWithLink = 4;
constexpr std::int64_t kVersionExposed = 5;

std::int64_t version_of(const PlanFile& file) {
  if (file.simulation.exposed_ns > 0) return kVersionExposed;
  return file.link ? kVersionWithLink : file.placement ? kVersionWithArena : kVersion;
}

struct Reading {
  PlanFile file;
  std::int64_t version = 0;
};

// "[action, value, offset]", with null for the value of a workspace.
Address read_address(JsonReader& in) {
  Address address;
  int part = 0;
  in.array([&] {
    switch (part++) {
      case 0:
        address.action = count(in);
        break;
      case 1:
        if (in.at(JsonKind::kNull)) {
          in.null();
        } else {
          address.value = value_id(in.id());
        }
        break;
      case 2:
        address.offset = in.size();
        break;
      default:
        (void)in.integer();
        in.fail("an address has three parts: the action, the value or null, and the offset");
    }
  });
  if (part < 3) in.fail("an address has three parts: the action, the value or null, and the offset");
  return address;
}

constexpr JsonField<Placement> kArenaFields[] = {
    {"arena_bytes", [](JsonReader& in, Placement& arena) { arena.arena_bytes = in.size(); }, kRequired},
    {"alignment_bytes", [](JsonReader& in, Placement& arena) { arena.alignment_bytes = in.size(); }, kRequired},
    {"load_bytes", [](JsonReader& in, Placement& arena) { arena.load_bytes = in.size(); }, kRequired},
    {"addresses",
     [](JsonReader& in, Placement& arena) { in.array([&] { arena.addresses.push_back(read_address(in)); }); },
     kRequired},
};

constexpr JsonField<Link> kLinkFields[] = {
    {"down_bytes_per_s", [](JsonReader& in, Link& link) { link.down_bytes_per_s = in.size(); }, kRequired},
    {"up_bytes_per_s", [](JsonReader& in, Link& link) { link.up_bytes_per_s = in.size(); }, kRequired},
    {"latency_ns", [](JsonReader& in, Link& link) { link.latency_ns = in.size(); }, kRequired},
    {"both_ways", [](JsonReader& in, Link& link) { link.both_ways = in.boolean(); }, kRequired},
};

constexpr JsonField<Reading> kPlanFields[] = {
    {"format", [](JsonReader& in, Reading&) { in.format("reprise.plan"); }, kRequired},
    {"version", [](JsonReader& in, Reading& r) { r.version = in.version(kVersion, kVersionExposed); }, kRequired},
    {"graph", [](JsonReader& in, Reading& r) { r.file.graph = in.string(); }, kRequired},
    {"ops", [](JsonReader& in, Reading& r) { r.file.ops = count(in); }, kRequired},
    {"values", [](JsonReader& in, Reading& r) { r.file.values = count(in); }, kRequired},
    {"planner", [](JsonReader& in, Reading& r) { r.file.planner = in.string(); }, kRequired},
    {"budget_bytes", [](JsonReader& in, Reading& r) { r.file.budget_bytes = in.size(); }, kRequired},
    {"peak_bytes", [](JsonReader& in, Reading& r) { r.file.simulation.peak_bytes = in.size(); }, kRequired},
    {"time_ns", [](JsonReader& in, Reading& r) { r.file.simulation.time_ns = in.size(); }, kRequired},
    {"recompute_ns", [](JsonReader& in, Reading& r) { r.file.simulation.recompute_ns = in.size(); }, kRequired},
    {"actions", [](JsonReader& in, Reading& r) { in.array([&] { r.file.plan.actions.push_back(read_action(in)); }); },
     kRequired},
    {"wait_ns", [](JsonReader& in, Reading& r) { r.file.simulation.wait_ns = in.size(); }},
    {"host_peak_bytes", [](JsonReader& in, Reading& r) { r.file.simulation.host_peak_bytes = in.size(); }},
    {"exposed_ns", [](JsonReader& in, Reading& r) { r.file.simulation.exposed_ns = in.size(); }},
    {"link", [](JsonReader& in, Reading& r) { in.object(kLinkFields, r.file.link.emplace()); }},
    {"arena", [](JsonReader& in, Reading& r) { in.object(kArenaFields, r.file.placement.emplace()); }},
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

void check_version(const Reading& read, std::string_view source) {
  if (version_of(read.file) == read.version) return;
  const char* has = read.version == kVersionExposed ? " has exposed time, but there is no key 'exposed_ns' above 0"
                    : read.file.simulation.exposed_ns > 0 ? " has no key 'exposed_ns'; version 5 does"
                    : read.version == kVersionWithLink    ? " has a link, but there is no key 'link'"
                    : read.file.link                      ? " has no key 'link'; version 4 does"
                    : read.version == kVersionWithArena   ? " has an arena, but there is no key 'arena'"
                                                          : " has no key 'arena'; version 3 does";
  throw InputError(std::string(source) + ": version " + std::to_string(read.version) + has);
}

void check_link(const PlanFile& file, std::string_view source) {
  if (file.link) return;
  for (std::size_t i = 0; i < file.plan.actions.size(); ++i) {
    if (!file.plan.actions[i].copies()) continue;
    throw InputError(std::string(source) + ": actions[" + std::to_string(i) +
                     "]: copies to the host or back, but the file has no link; version 4 does");
  }
}

void check_arena(const Reading& read, std::string_view source) {
  if (!read.file.placement) return;
  const std::vector<Address>& addresses = read.file.placement->addresses;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const Address& address = addresses[i];
    const bool knows_action = address.action < read.file.plan.actions.size();
    if (knows_action && (address.value == kNoValue || index(address.value) < read.file.values)) continue;
    throw InputError(std::string(source) + ": addresses[" + std::to_string(i) + "]: names " +
                     (knows_action ? "value " + std::to_string(index(address.value)) + ", but the graph has " +
                                         std::to_string(read.file.values)
                                   : "action " + std::to_string(address.action) + ", but the plan has " +
                                         std::to_string(read.file.plan.actions.size())));
  }
}

void append_link(std::string& out, const Link& link) {
  JsonObject object(out);
  object.field("down_bytes_per_s", link.down_bytes_per_s);
  object.field("up_bytes_per_s", link.up_bytes_per_s);
  object.field("latency_ns", link.latency_ns);
  object.field("both_ways", link.both_ways);
}

void append_arena(std::string& out, const Placement& placement) {
  JsonObject arena(out);
  arena.field("arena_bytes", placement.arena_bytes);
  arena.field("alignment_bytes", placement.alignment_bytes);
  arena.field("load_bytes", placement.load_bytes);
  append_list(arena.line("addresses"), placement.addresses, [&](const Address& address) {
    append_number(out += '[', address.action);
    out += ',';
    if (address.value == kNoValue) {
      out += "null";
    } else {
      append_number(out, index(address.value));
    }
    append_number(out += ',', address.offset);
    out += ']';
  });
}

}  // namespace

Action detail::read_action(JsonReader& in) {
  const std::string text = in.string();
  const std::optional<Action> action = parse_action(text);
  if (!action) in.fail("'" + text + "' is not an action; actions are 'c12', 'c12!', 'f7', 's7' and 'b7'");
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
    case Action::Kind::kStore:
      append_number(out += "\"s", index(action.value()));
      break;
    case Action::Kind::kFetch:
      append_number(out += "\"b", index(action.value()));
      break;
  }
  out += '"';
}

PlanFile parse_plan(std::string_view text, std::string_view source) {
  Reading read;
  JsonReader in(text, source);
  in.object(kPlanFields, read);
  check_ids(read.file, source);
  check_version(read, source);
  check_link(read.file, source);
  check_arena(read, source);
  return std::move(read.file);
}

std::string format_plan(const PlanFile& file) {
  std::string out;
  {
    JsonObject object(out);
    object.line("format", "reprise.plan");
    object.field("version", version_of(file));
    object.line("graph", file.graph);
    object.line("ops", file.ops);
    object.field("values", file.values);
    object.line("planner", file.planner);
    object.line("budget_bytes", file.budget_bytes);
    object.field("peak_bytes", file.simulation.peak_bytes);
    object.field("time_ns", file.simulation.time_ns);
    object.field("recompute_ns", file.simulation.recompute_ns);
    if (file.simulation.exposed_ns > 0) object.field("exposed_ns", file.simulation.exposed_ns);
    if (file.link) {
      object.field("wait_ns", file.simulation.wait_ns);
      object.field("host_peak_bytes", file.simulation.host_peak_bytes);
      append_link(object.line("link"), *file.link);
    }
    append_list(object.line("actions"), file.plan.actions, [&](Action action) { append_action(out, action); });
    if (file.placement) append_arena(object.line("arena"), *file.placement);
    out += '\n';
  }
  return out + '\n';
}

}  // namespace reprise
