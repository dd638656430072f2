#include "runtime/session/plan_book.h"

#include <c10/util/hash.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <utility>

#include "io/json_reader.h"
#include "io/json_writer.h"
#include "io/plan_json.h"
#include "reprise/error.h"
#include "reprise/io.h"
#include "reprise/validate.h"
#include "runtime/files/cache.h"
#include "runtime/messages.h"

namespace reprise {
namespace {

using detail::append_action;
using detail::append_list;
using detail::JsonField;
using detail::JsonObject;
using detail::JsonReader;
using detail::kRequired;

constexpr std::string_view kPlansFormat = "reprise.plans";
constexpr std::int64_t kPlansVersion = 2;

using Clock = std::chrono::steady_clock;

std::string file_name(const Graph& graph, const Costs& costs, const PlanMethod& method) {
  std::string text = std::string(REPRISE_VERSION) + ", format " + std::to_string(kPlansVersion) + "\n" +
                     method.planner + "\n" + format_graph(graph, costs);
  if (method.host_budget_bytes > 0 && costs.link) {
    for (const std::int64_t number :
         {method.host_budget_bytes, costs.link->down_bytes_per_s, costs.link->up_bytes_per_s, costs.link->latency_ns}) {
      text += "\n" + std::to_string(number);
    }
    text += costs.link->both_ways ? "\nboth ways" : "\none way";
  }
  return "plans/" + c10::sha1(text).str() + ".json";
}

std::int64_t milliseconds(double seconds) { return static_cast<std::int64_t>(std::llround(1e3 * seconds)); }

}  // namespace

// -- The file.

struct PlanBook::File {
  static constexpr JsonField<Known> kPlanFields[] = {
      {"planner", [](JsonReader& in, Known& known) { known.planner = in.string(); }, kRequired},
      {"actions",
       [](JsonReader& in, Known& known) { in.array([&] { known.plan.actions.push_back(detail::read_action(in)); }); },
       kRequired},
      {"bound_budget_bytes", [](JsonReader& in, Known& known) { known.bound_budget_bytes = in.size(); }},
      {"lower_bound_ns", [](JsonReader& in, Known& known) { known.lower_bound_ns = in.size(); }},
  };
  static constexpr JsonField<Asked> kAskedFields[] = {
      {"budget_bytes", [](JsonReader& in, Asked& asked) { asked.budget_bytes = in.size(); }, kRequired},
      {"smallest_budget_bytes", [](JsonReader& in, Asked& asked) { asked.smallest_budget_bytes = in.size(); },
       kRequired},
      {"stopped_after_ms", [](JsonReader& in, Asked& asked) { asked.stopped_after_ms = in.size(); }},
  };
  static constexpr JsonField<Contents> kFields[] = {
      {"format", [](JsonReader& in, Contents&) { in.format(kPlansFormat); }, kRequired},
      {"version", [](JsonReader& in, Contents&) { in.version(kPlansVersion); }, kRequired},
      {"plans",
       [](JsonReader& in, Contents& contents) {
         in.array([&] { in.object(kPlanFields, contents.plans.emplace_back()); });
       },
       kRequired},
      {"asked",
       [](JsonReader& in, Contents& contents) {
         in.array([&] {
           Asked asked;
           in.object(kAskedFields, asked);
           contents.asked[asked.budget_bytes] = asked;
         });
       },
       kRequired},
  };

  static std::string text(const Contents& contents) {
    std::string out;
    {
      JsonObject file(out);
      file.field("format", kPlansFormat);
      file.field("version", kPlansVersion);
      append_list(file.line("asked"), contents.asked, [&](const auto& one) {
        JsonObject asked(out += '\n');
        asked.field("budget_bytes", one.first);
        asked.field("smallest_budget_bytes", one.second.smallest_budget_bytes);
        if (one.second.stopped_after_ms) asked.field("stopped_after_ms", *one.second.stopped_after_ms);
      });
      append_list(file.line("plans"), contents.plans, [&](const Known& known) {
        JsonObject plan(out += '\n');
        plan.field("planner", known.planner);
        if (known.lower_bound_ns) {
          plan.field("bound_budget_bytes", known.bound_budget_bytes);
          plan.field("lower_bound_ns", *known.lower_bound_ns);
        }
        append_list(plan.key("actions"), known.plan.actions, [&](Action action) { append_action(out, action); });
      });
    }
    return out + '\n';
  }
};

PlanBook::PlanBook(const Graph& graph, const Costs& costs, PlanMethod method, Search search)
    : graph_(graph),
      costs_(costs),
      method_(std::move(method)),
      solve_(std::move(search)),
      name_(file_name(graph, costs, method_)) {
  check_planner(method_.planner);
  read();
}

// The contents of files that could not be written, so that at least this process knows them.
struct PlanBook::Unwritten {
  std::mutex mutex;
  std::map<std::filesystem::path, Contents> files;

  static Unwritten& instance() {
    static auto* unwritten = new Unwritten;
    return *unwritten;
  }
};

namespace {

// The lock is held from reading a file to writing it, so that everything that threads find at the same time is kept.
std::mutex& updates() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

}  // namespace

void PlanBook::read() {
  {
    Unwritten& unwritten = Unwritten::instance();
    const std::lock_guard lock(unwritten.mutex);
    const auto known = unwritten.files.find(cache_folder() / name_);
    if (known != unwritten.files.end()) {
      contents_ = known->second;
      return;
    }
  }
  const auto text = read_cache(name_);
  if (!text) return;
  try {
    contents_ = contents_of(*text);
  } catch (const InputError& error) {
    refuse_cache(name_, error.what());
  }
}

PlanBook::Contents PlanBook::contents_of(const std::string& text) const {
  Contents contents;
  JsonReader in(text, name_);
  in.object(File::kFields, contents);
  for (Known& known : contents.plans) {
    if (const auto wrong = validate(graph_, known.plan)) throw InputError(wrong->message);
    known.simulation = simulate(graph_, costs_, known.plan);
  }
  check(contents);
  return contents;
}

// Checks that every budget that was said to have a plan has one.
void PlanBook::check(const Contents& contents) const {
  std::optional<std::int64_t> least;
  for (const Known& known : contents.plans) {
    least = std::min(least.value_or(known.simulation.peak_bytes), known.simulation.peak_bytes);
  }
  for (const auto& [budget, asked] : contents.asked) {
    const std::int64_t promised = asked.smallest_budget_bytes == 0 ? budget : asked.smallest_budget_bytes;
    if (!least || *least > promised) throw InputError("it has no plan within " + std::to_string(promised) + " bytes");
  }
}

void PlanBook::write() {
  const bool is_written = write_cache(name_, File::text(contents_));
  Unwritten& unwritten = Unwritten::instance();
  const std::lock_guard lock(unwritten.mutex);
  if (is_written) {
    unwritten.files.erase(cache_folder() / name_);
  } else {
    unwritten.files.insert_or_assign(cache_folder() / name_, contents_);
  }
}

bool PlanBook::is_worth_a_search(std::int64_t budget_bytes, double seconds) const {
  const auto asked = contents_.asked.find(budget_bytes);
  if (asked == contents_.asked.end()) return true;
  return asked->second.stopped_after_ms && *asked->second.stopped_after_ms < milliseconds(seconds);
}

void PlanBook::keep(Known plan) {
  const auto beats = [](const Known& a, const Known& b) {
    return a.simulation.peak_bytes <= b.simulation.peak_bytes && a.simulation.time_ns <= b.simulation.time_ns;
  };
  auto& plans = contents_.plans;
  if (std::ranges::any_of(plans, [&](const Known& known) { return beats(known, plan); })) return;
  std::erase_if(plans, [&](const Known& known) { return beats(plan, known); });
  plans.push_back(std::move(plan));
}

FoundPlan PlanBook::best(std::int64_t budget_bytes) const {
  const Known* best = nullptr;
  std::int64_t least = 0;
  for (const Known& known : contents_.plans) {
    const std::int64_t peak = known.simulation.peak_bytes;
    least = least == 0 ? peak : std::min(least, peak);
    if (peak > budget_bytes) continue;
    if (best == nullptr || known.simulation.time_ns < best->simulation.time_ns) best = &known;
  }
  if (best == nullptr) return {.smallest_budget_bytes = least};
  FoundPlan found{
      .status = Status::kFeasible, .plan = best->plan, .planner = best->planner, .simulation = best->simulation};
  if (best->bound_budget_bytes == budget_bytes) found.lower_bound_ns = best->lower_bound_ns;
  return found;
}

void PlanBook::search(std::int64_t budget_bytes, double seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  SolveOptions options = method_.options(budget_bytes);
  options.should_stop = [end] { return Clock::now() > end; };
  Progress progress("planning");
  options.progress = [&progress](std::size_t done, std::size_t total) { progress(done, total); };
  Solution found = solve_(graph_, costs_, options);
  add(budget_bytes, std::move(found), Clock::now() > end ? std::optional(seconds) : std::nullopt);
}

void PlanBook::add(std::int64_t budget_bytes, Solution found, std::optional<double> stopped_after) {
  Asked asked{.budget_bytes = budget_bytes};
  if (stopped_after) asked.stopped_after_ms = milliseconds(*stopped_after);
  Known plan{.planner = method_.planner,
             .plan = std::move(found.plan),
             .simulation = found.simulation,
             .bound_budget_bytes = budget_bytes,
             .lower_bound_ns = found.lower_bound_ns};
  if (plan.plan.actions.empty() || plan.simulation.peak_bytes > budget_bytes) {
    asked.smallest_budget_bytes = found.smallest_budget_bytes;
    plan.plan = std::move(found.smallest_plan);
    plan.lower_bound_ns.reset();
    if (plan.plan.actions.empty()) return;  // stopped too early to know anything
    plan.simulation = simulate(graph_, costs_, plan.plan);
  }
  const std::lock_guard lock(updates());
  read();  // again, because others may have written the file during this search
  contents_.asked[budget_bytes] = asked;
  keep(std::move(plan));
  write();
}

FoundPlan PlanBook::find(std::optional<std::int64_t> budget_bytes, double seconds) {
  if (!budget_bytes) {
    Solution solution = solve_(graph_, costs_, {.planner = "none"});
    return {.status = solution.status,
            .plan = std::move(solution.plan),
            .planner = "none",
            .simulation = solution.simulation};
  }
  const auto begin = Clock::now();
  const std::int64_t budget = std::max<std::int64_t>(0, *budget_bytes);
  if (is_worth_a_search(budget, seconds)) search(budget, seconds);
  FoundPlan found = best(budget);
  const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
  log_line(Severity::kInfo, "planned in " + std::to_string(spent.count()) +
                                " ms: " + (found.found() ? found.planner : std::string("infeasible")));
  return found;
}

std::int64_t PlanBook::smallest_budget_bytes(double seconds) {
  search(0, seconds);
  return best(0).smallest_budget_bytes;
}

void PlanBook::carry_over(const PlanBook& other) {
  if (other.contents_.plans.empty()) return;
  const std::lock_guard lock(updates());
  read();
  for (const Known& known : other.contents_.plans) {
    keep({.planner = known.planner, .plan = known.plan, .simulation = simulate(graph_, costs_, known.plan)});
  }
  write();
}

void check_planner(const std::string& planner) {
  std::string list;
  for (const std::string_view name : planner_names()) {
    if (name == planner) return;
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  throw InputError("unknown planner '" + planner + "'; the planners are " + list);
}

std::string recomputation_text(const Simulation& simulation) {
  const auto once = std::max<std::int64_t>(1, simulation.time_ns - simulation.recompute_ns - simulation.wait_ns);
  const std::int64_t tenths = (1000 * simulation.recompute_ns + once / 2) / once;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " %";
}

}  // namespace reprise
