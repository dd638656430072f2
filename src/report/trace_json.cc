// A planned step in the Trace Event Format, which Perfetto and chrome://tracing open: one track per phase and one for
// recomputation, an X event per run, and two counters; for a plan that copies, also a track per direction, and one per
// communicator. Times are microseconds from the start of the step.
#include <optional>
#include <string>
#include <string_view>

#include "io/json_writer.h"
#include "report/step_story.h"
#include "reprise/report.h"

namespace reprise {
namespace {

using detail::append_number;
using detail::JsonObject;
using detail::kind_name;
using detail::StepRun;

// The track of communicator s is kUpTrack + s.
enum Track : std::uint32_t { kForwardTrack = 1, kBackwardTrack = 2, kAgainTrack = 3, kDownTrack = 4, kUpTrack = 5 };

// Microseconds with three digits: nanoseconds, exactly.
void append_us(std::string& out, std::int64_t ns) {
  append_number(out, ns / 1000);
  const std::int64_t rest = ns % 1000;
  out += rest < 10 ? ".00" : rest < 100 ? ".0" : ".";
  append_number(out, rest);
}

// The beginning of every event.
struct Event : JsonObject {
  Event(std::string& out, std::string_view kind) : JsonObject(out) {
    field("ph", kind);
    field("pid", 1);
  }
};

void append_name(std::string& out, std::string_view what, std::string_view name,
                 std::optional<std::uint32_t> track = {}) {
  {
    Event event(out, "M");
    if (track) event.field("tid", *track);
    event.field("name", what);
    JsonObject(event.key("args")).field("name", name);
  }
  out += ",\n";
}

void append_counter(std::string& out, std::string_view name, std::int64_t at_ns, std::int64_t bytes) {
  {
    Event event(out, "C");
    event.field("name", name);
    append_us(event.key("ts"), at_ns);
    JsonObject(event.key("args")).field("bytes", bytes);
  }
  out += ",\n";
}

void append_run(std::string& out, const ReportInput& input, const StepRun& run, std::int64_t at_ns,
                std::int64_t peak_bytes) {
  const Graph& graph = input.graph;
  const bool is_backward = graph.phase(run.op) == Phase::kBackward;
  const std::string_view scope = graph.scope_name(run.op);
  {
    Event event(out, "X");
    event.field("tid", static_cast<int>(run.again ? kAgainTrack : is_backward ? kBackwardTrack : kForwardTrack));
    event.field("name", std::string(scope) + (scope.empty() ? "" : " ") + std::string(kind_name(graph, run.op)));
    event.field("cat", run.again ? "recomputed" : is_backward ? "backward" : "forward");
    append_us(event.key("ts"), at_ns);
    append_us(event.key("dur"), input.costs.time_ns[index(run.op)]);
    JsonObject arguments(event.key("args"));
    arguments.field("op", graph.op_name(run.op));
    arguments.field("module", scope);
    arguments.field("peak_bytes", peak_bytes);
  }
  out += ",\n";
}

void append_copies(std::string& out, const ReportInput& input) {
  if (!copies(input.plan)) return;
  append_name(out, "thread_name", "to the host", kDownTrack);
  append_name(out, "thread_name", "back", kUpTrack);
  const Timeline times = timeline(input.graph, input.costs, input.plan);
  for (std::size_t i = 0; i < input.plan.actions.size(); ++i) {
    const Action action = input.plan.actions[i];
    if (!action.copies()) continue;
    const OpId op = detail::known_by(input.graph, action.value());
    const bool is_store = action.stores();
    {
      Event event(out, "X");
      event.field("tid", static_cast<int>(is_store ? kDownTrack : kUpTrack));
      event.field("name", op == kNoOp ? "value" : kind_name(input.graph, op));
      event.field("cat", is_store ? "store" : "fetch");
      append_us(event.key("ts"), times.begin_ns[i]);
      append_us(event.key("dur"), times.end_ns[i] - times.begin_ns[i]);
      JsonObject arguments(event.key("args"));
      arguments.field("value", index(action.value()));
      arguments.field("bytes", input.costs.value_bytes[index(action.value())]);
    }
    out += ",\n";
  }
}

// Every collective from its begin to its end, on the track of its communicator.
void append_collectives(std::string& out, const ReportInput& input) {
  const Graph& graph = input.graph;
  if (graph.num_communicators() == 0) return;
  for (std::uint32_t s = 1; s <= graph.num_communicators(); ++s) {
    append_name(out, "thread_name", "communicator " + std::to_string(s), kUpTrack + s);
  }
  const Timeline times = timeline(graph, input.costs, input.plan);
  for (std::size_t i = 0; i < input.plan.actions.size(); ++i) {
    const Action action = input.plan.actions[i];
    if (!action.computes() || !graph.is_start(action.op())) continue;
    const std::string_view scope = graph.scope_name(action.op());
    {
      Event event(out, "X");
      event.field("tid", kUpTrack + graph.stream(action.op()));
      event.field("name", std::string(scope) + (scope.empty() ? "" : " ") + std::string(kind_name(graph, action.op())));
      event.field("cat", "collective");
      append_us(event.key("ts"), times.begin_ns[i]);
      append_us(event.key("dur"), times.end_ns[i] - times.begin_ns[i]);
      JsonObject arguments(event.key("args"));
      arguments.field("op", graph.op_name(action.op()));
    }
    out += ",\n";
  }
}

}  // namespace

std::string trace_json(const ReportInput& input) {
  detail::check_measured(input);
  const Graph& graph = input.graph;
  const detail::StepStory story = detail::tell(graph, input.costs, input.plan);
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  append_name(out, "process_name", graph.name().empty() ? "planned step" : graph.name());
  append_name(out, "thread_name", "forward", kForwardTrack);
  append_name(out, "thread_name", "backward", kBackwardTrack);
  append_name(out, "thread_name", "recomputed", kAgainTrack);
  append_counter(out, "memory", 0, story.start_bytes + input.outside_bytes);
  for (std::size_t i = 0; i < story.runs.size(); ++i) {
    const StepRun& run = story.runs[i];
    const bool is_start = graph.is_start(run.op);  // it takes no time of the device, and has a track of its own
    const std::int64_t begin_ns = run.begin_ns, end_ns = begin_ns + (is_start ? 0 : input.costs.time_ns[index(run.op)]);
    const std::int64_t peak_bytes = run.during_bytes + input.outside_bytes;
    if (!is_start) append_run(out, input, run, begin_ns, peak_bytes);
    append_counter(out, "memory", begin_ns, peak_bytes);
    append_counter(out, "memory", end_ns, run.after_bytes + input.outside_bytes);
    if (!input.measured) continue;
    const std::size_t next = i + 1 < story.runs.size() ? story.runs[i + 1].action : input.plan.actions.size();
    append_counter(out, "memory, measured", begin_ns, input.measured->during_bytes[run.action]);
    append_counter(out, "memory, measured", end_ns, input.measured->after_bytes[next - 1]);
  }
  append_copies(out, input);
  append_collectives(out, input);
  if (input.budget_bytes > 0) {
    append_counter(out, "budget", 0, input.budget_bytes);
    append_counter(out, "budget", story.total.time_ns, input.budget_bytes);
  }
  out.resize(out.size() - 2);  // the last comma
  return out + "\n]}\n";
}

}  // namespace reprise
