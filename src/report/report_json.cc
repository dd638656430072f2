// The report's data as JSON: docs/report.md. Amounts of memory include what lies beside the step.
#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/json_writer.h"
#include "place/requests.h"
#include "report/step_story.h"
#include "reprise/error.h"
#include "reprise/report.h"

namespace reprise {
namespace {

using detail::append_list;
using detail::append_number;
using detail::kind_name;
using detail::known_by;
using detail::module_name;
using detail::Recomputed;
using detail::StepRun;
using detail::StepStory;
using Numbers = std::vector<std::size_t>;

// One object with one key per line.
class Object : public detail::JsonObject {
 public:
  using JsonObject::JsonObject;

  template <typename T>
  void known(std::string_view name, const std::optional<T>& value) {
    if (value) return line(name, *value);
    line(name) += "null";
  }
  template <typename Elements, typename Number>
  void column(std::string_view name, const Elements& elements, Number number) {
    std::string& out = line(name);
    append_list(out, elements, [&](const auto& element) { append_number(out, number(element)); });
  }
};

// What one of the user's modules does in both steps.
struct ModuleSums {
  std::int64_t time_ns = 0;  // of all first runs
  std::int64_t recomputed_runs = 0;
  std::int64_t recompute_ns = 0;
  std::int64_t kept_bytes = 0;
  std::int64_t plain_kept_bytes = 0;
  std::int64_t at_peak_bytes = 0;
};

class Writer {
 public:
  explicit Writer(const ReportInput& input)
      : input_(input),
        graph_(input.graph),
        costs_(input.costs),
        plain_plan_(solve(graph_, costs_, {.planner = "none"}).plan),
        plain_(detail::tell(graph_, costs_, plain_plan_)),
        planned_(detail::tell(graph_, costs_, input.plan)) {
    for (std::size_t i = 0; i < graph_.num_ops(); ++i) {
      module_of_.push_back(modules_[module_name(graph_, op_id(i))]);
      kind_of_.push_back(kinds_[kind_name(graph_, op_id(i))]);
    }
  }

  std::string write() && {
    std::string out;
    {
      Object report(out);
      report.line("format", "reprise.report");
      report.line("version", 1);
      add_totals(report);
      add_ops(report);
      add_runs(report, "plain_runs", plain_, nullptr);
      add_runs(report, "planned_runs", planned_, input_.measured ? &*input_.measured : nullptr);
      add_peak(report, "plain_at_peak", plain_);
      add_peak(report, "at_peak", planned_);
      add_recomputed(report);
      add_modules(report);
      add_curve(report);
      if (input_.placement) add_arena(report, *input_.placement);
    }
    return out + '\n';
  }

 private:
  [[nodiscard]] std::int64_t all(std::int64_t bytes) const { return bytes + input_.outside_bytes; }

  void add_totals(Object& report) {
    report.line("name", graph_.name());
    report.line("planner", input_.planner);
    report.line("time_unit", input_.time_in_units ? "unit" : "ns");
    {
      Object facts(report.line("facts"));
      for (const auto& [name, text] : input_.facts) facts.line(name, text);
    }
    std::int64_t resident = 0;
    for (std::size_t i = 0; i < graph_.num_values(); ++i) {
      if (graph_.residence(value_id(i)) == Residence::kResident) resident += costs_.value_bytes[i];
    }
    report.known("budget_bytes", input_.budget_bytes > 0 ? std::optional(input_.budget_bytes) : std::nullopt);
    report.line("outside_bytes", input_.outside_bytes);
    report.line("resident_bytes", all(resident));
    report.line("start_bytes", all(planned_.start_bytes));
    add_total(report, "plain", plain_);
    add_total(report, "planned", planned_);
    report.known("measured_peak_bytes", measured_peak());
    report.known("lower_bound_ns", bound());
    report.known("floor_bytes", floor());
    report.line("reordered", planned_.reordered);
  }

  void add_total(Object& report, std::string_view key, const StepStory& story) {
    Object total(report.line(key));
    total.line("peak_bytes", all(story.total.peak_bytes));
    total.line("time_ns", story.total.time_ns);
    total.line("recompute_ns", story.total.recompute_ns);
    total.line("kept_bytes", sum(story.live_at_caller));
    if (graph_.num_communicators() > 0) total.line("exposed_ns", story.total.exposed_ns);
    if (story.total.host_peak_bytes == 0) return;
    total.line("wait_ns", story.total.wait_ns);
    total.line("host_peak_bytes", story.total.host_peak_bytes);
  }

  // The bound for the order of this plan; points of the curve may have other orders, and so other bounds.
  [[nodiscard]] std::optional<std::int64_t> bound() const {
    const bool known =
        std::ranges::any_of(input_.curve, [](const Solution& point) { return point.lower_bound_ns.has_value(); });
    return known ? std::optional(lower_bound_ns(graph_, costs_, input_.plan)) : std::nullopt;
  }

  [[nodiscard]] std::optional<std::int64_t> floor() const {
    for (const Solution& point : input_.curve) {
      if (point.floor_bytes > 0) return all(point.floor_bytes);
    }
    return std::nullopt;
  }

  [[nodiscard]] std::optional<std::int64_t> measured_peak() const {
    if (!input_.measured || input_.measured->during_bytes.empty()) return std::nullopt;
    return *std::ranges::max_element(input_.measured->during_bytes);
  }

  [[nodiscard]] std::int64_t sum(const std::vector<ValueId>& values) const {
    std::int64_t bytes = 0;
    for (const ValueId v : values) bytes += costs_.value_bytes[index(v)];
    return bytes;
  }

  void add_ops(Object& report) {
    report.line("modules", modules_.list());
    report.line("kinds", kinds_.list());
    std::vector<OpId> ops;
    for (std::size_t i = 0; i < graph_.num_ops(); ++i) ops.push_back(op_id(i));
    Object columns(report.line("ops"));
    columns.column("module", ops, [&](OpId op) { return module_of_[index(op)]; });
    columns.column("kind", ops, [&](OpId op) { return kind_of_[index(op)]; });
    columns.column("phase", ops, [&](OpId op) { return static_cast<int>(graph_.phase(op)); });
    columns.column("time_ns", ops, [&](OpId op) { return costs_.time_ns[index(op)]; });
    if (graph_.num_communicators() > 0) {
      columns.column("stream", ops, [&](OpId op) { return graph_.stream(op); });
    }
    columns.column("workspace_bytes", ops, [&](OpId op) { return costs_.workspace_bytes[index(op)]; });
    columns.column("output_bytes", ops, [&](OpId op) {
      std::int64_t bytes = 0;
      for (const ValueId v : graph_.outputs(op)) bytes += costs_.value_bytes[index(v)];
      return bytes;
    });
  }

  void add_runs(Object& report, std::string_view key, const StepStory& story, const MeasuredStep* measured) {
    Object columns(report.line(key));
    columns.column("op", story.runs, [](const StepRun& run) { return index(run.op); });
    columns.column("again", story.runs, [](const StepRun& run) { return run.again ? 1 : 0; });
    columns.column("during_bytes", story.runs, [&](const StepRun& run) { return all(run.during_bytes); });
    columns.column("after_bytes", story.runs, [&](const StepRun& run) { return all(run.after_bytes); });
    if (story.total.host_peak_bytes > 0 || graph_.num_communicators() > 0) {  // times do not add up
      columns.column("begin_ns", story.runs, [](const StepRun& run) { return run.begin_ns; });
    }
    if (measured == nullptr) return;
    std::vector<std::size_t> last;  // of each run: its last free, or itself
    for (std::size_t i = 1; i < story.runs.size(); ++i) last.push_back(story.runs[i].action - 1);
    if (!story.runs.empty()) last.push_back(input_.plan.actions.size() - 1);
    columns.column("measured_during_bytes", story.runs,
                   [&](const StepRun& run) { return measured->during_bytes[run.action]; });
    columns.column("measured_after_bytes", last, [&](std::size_t action) { return measured->after_bytes[action]; });
  }

  void add_peak(Object& report, std::string_view key, const StepStory& story) {
    const auto op_number = [](OpId op) {
      return op == kNoOp ? std::int64_t{-1} : static_cast<std::int64_t>(index(op));
    };
    Object peak(report.line(key));
    peak.known("run", story.peak_run);
    peak.line("values_bytes", sum(story.live_at_peak));
    peak.line("workspace_bytes", story.total.peak_bytes - sum(story.live_at_peak));
    peak.column("bytes", story.live_at_peak, [&](ValueId v) { return costs_.value_bytes[index(v)]; });
    peak.column("op", story.live_at_peak, [&](ValueId v) { return op_number(known_by(graph_, v)); });
    peak.column("there_at_start", story.live_at_peak, [&](ValueId v) { return graph_.producer(v) == kNoOp ? 1 : 0; });
  }

  // Bytes of an op's results that plain training holds during the caller's op and this plan does not.
  [[nodiscard]] std::vector<std::int64_t> not_held() const {
    std::vector<std::int64_t> bytes(graph_.num_ops(), 0);
    for (const ValueId v : plain_.live_at_caller) bytes[index(graph_.producer(v))] += costs_.value_bytes[index(v)];
    for (const ValueId v : planned_.live_at_caller) {
      std::int64_t& left = bytes[index(graph_.producer(v))];
      left = std::max<std::int64_t>(0, left - costs_.value_bytes[index(v)]);
    }
    return bytes;
  }

  void add_recomputed(Object& report) {
    const std::vector<std::int64_t> away = not_held();
    const auto& rows = planned_.recomputed;
    Object columns(report.line("recomputed"));
    columns.column("op", rows, [](const Recomputed& row) { return index(row.op); });
    columns.column("runs", rows, [](const Recomputed& row) { return row.runs; });
    columns.column("cost_ns", rows, [](const Recomputed& row) { return row.cost_ns; });
    columns.column("not_held_bytes", rows, [&](const Recomputed& row) { return away[index(row.op)]; });
    columns.column("peak_if_kept_bytes", rows, [&](const Recomputed& row) { return all(row.peak_if_kept_bytes); });
  }

  void add_modules(Object& report) {
    std::vector<ModuleSums> sums(modules_.list().size());
    const auto of = [&](OpId op) -> ModuleSums& { return sums[module_of_[index(op)]]; };
    for (const StepRun& run : planned_.runs) {
      ModuleSums& row = of(run.op);
      (run.again ? row.recompute_ns : row.time_ns) += costs_.time_ns[index(run.op)];
      row.recomputed_runs += run.again ? 1 : 0;
    }
    for (const ValueId v : planned_.live_at_caller) of(graph_.producer(v)).kept_bytes += costs_.value_bytes[index(v)];
    for (const ValueId v : plain_.live_at_caller)
      of(graph_.producer(v)).plain_kept_bytes += costs_.value_bytes[index(v)];
    for (const ValueId v : planned_.live_at_peak) {
      if (known_by(graph_, v) != kNoOp) of(known_by(graph_, v)).at_peak_bytes += costs_.value_bytes[index(v)];
    }
    Object columns(report.line("by_module"));
    columns.column("time_ns", sums, [](const ModuleSums& row) { return row.time_ns; });
    columns.column("recomputed_runs", sums, [](const ModuleSums& row) { return row.recomputed_runs; });
    columns.column("recompute_ns", sums, [](const ModuleSums& row) { return row.recompute_ns; });
    columns.column("kept_bytes", sums, [](const ModuleSums& row) { return row.kept_bytes; });
    columns.column("plain_kept_bytes", sums, [](const ModuleSums& row) { return row.plain_kept_bytes; });
    columns.column("at_peak_bytes", sums, [](const ModuleSums& row) { return row.at_peak_bytes; });
  }

  void add_curve(Object& report) {
    const std::vector<Solution>& points = input_.curve;
    Object columns(report.line("curve"));
    columns.column("peak_bytes", points, [&](const Solution& point) { return all(point.simulation.peak_bytes); });
    columns.column("time_ns", points, [](const Solution& point) { return point.simulation.time_ns; });
    columns.column("recompute_ns", points, [](const Solution& point) { return point.simulation.recompute_ns; });
    std::string& out = columns.line("lower_bound_ns");
    append_list(out, points, [&](const Solution& point) {
      if (!point.lower_bound_ns) {
        out += "null";
      } else {
        append_number(out, *point.lower_bound_ns);
      }
    });
  }

  // What lies in the arena: from which run to before which.
  void add_arena(Object& report, const Placement& placement) {
    std::map<std::pair<std::size_t, ValueId>, std::int64_t> offsets;
    for (const Address& address : placement.addresses) offsets[{address.action, address.value}] = address.offset;
    const std::vector<detail::Request> asked = detail::requests(graph_, costs_, input_.plan);
    const auto run_from = [&](std::size_t action) {
      return std::ranges::lower_bound(planned_.runs, action, {}, &StepRun::action) - planned_.runs.begin();
    };
    Object arena(report.line("arena"));
    arena.line("arena_bytes", placement.arena_bytes);
    arena.line("load_bytes", placement.load_bytes);
    arena.column("begin", asked, [&](const detail::Request& r) { return run_from(r.buffer.begin); });
    arena.column("end", asked, [&](const detail::Request& r) { return run_from(r.buffer.end); });
    arena.column("offset", asked, [&](const detail::Request& r) { return offsets.at({r.buffer.begin, r.value}); });
    arena.column("bytes", asked, [](const detail::Request& r) { return r.buffer.bytes; });
    arena.column("op", asked, [&](const detail::Request& r) {
      const Action action = input_.plan.actions[r.buffer.begin];
      return index(action.computes() ? action.op() : known_by(graph_, r.value));
    });
    arena.column("kind", asked, [](const detail::Request& r) {
      return r.buffer.outlives ? 2 : r.value == kNoValue ? 1 : 0;
    });
  }

  const ReportInput& input_;
  const Graph& graph_;
  const Costs& costs_;
  Plan plain_plan_;
  StepStory plain_;
  StepStory planned_;
  detail::JsonNames modules_;
  detail::JsonNames kinds_;
  Numbers module_of_;
  Numbers kind_of_;
};

}  // namespace

std::string report_json(const ReportInput& input) {
  if (input.graph.forward_only()) {
    throw InputError("a report of '" + input.graph.name() +
                     "', which has no backward pass; complete_backward() adds one");
  }
  detail::check_measured(input);
  return Writer(input).write();
}

}  // namespace reprise
