// Planners. They run without the interpreter's lock; callbacks and Ctrl-C get it back for as long as they take.
#include <array>
#include <chrono>
#include <exception>
#include <map>
#include <string>
#include <utility>

#include "core.h"
#include "reprise/error.h"
#include "reprise/solve.h"
#include "solve/planner_knobs.h"

namespace reprise::bindings {
namespace {

// The caller's functions, as the options take them. What they raise does not pass through the planner: it ends the
// search, and is raised again by rethrow().
class Callbacks {
 public:
  Callbacks(py::object should_stop, py::object progress)
      : should_stop_(std::move(should_stop)), progress_(std::move(progress)) {}

  void attach(SolveOptions& options) {
    options.should_stop = [this] { return stopped(); };
    if (progress_.is_none()) return;
    options.progress = [this](std::size_t done, std::size_t total) { guarded([&] { progress_(done, total); }); };
  }

  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  // Planners ask often, and another thread may hold the lock for milliseconds, so Python is asked the first time and
  // then only now and then.
  bool stopped() {
    if (error_ || said_stop_) return true;
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return false;
    guarded([this] {
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      said_stop_ = !should_stop_.is_none() && py::bool_(should_stop_());
    });
    next_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
    return error_ || said_stop_;
  }

  template <typename Call>
  void guarded(Call call) {
    if (error_) return;
    const py::gil_scoped_acquire lock;
    try {
      call();
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  py::object should_stop_;
  py::object progress_;
  std::chrono::steady_clock::time_point next_{};
  bool said_stop_ = false;
  std::exception_ptr error_;
};

template <typename Enum, std::size_t kCount>
Enum named(const char* option, const std::array<const char*, kCount>& names, const std::string& name) {
  std::string known;
  for (std::size_t i = 0; i < kCount; ++i) {
    if (name == names[i]) return static_cast<Enum>(i);
    known += std::string(i == 0 ? "" : ", ") + "'" + names[i] + "'";
  }
  throw InputError(std::string(option) + " '" + name + "'; it is one of " + known);
}

constexpr std::array<const char*, 2> kJudges = {"simulated", "formula"};
constexpr std::array<const char*, 4> kObjectives = {"any", "time", "max-overhead", "min-cache"};
constexpr std::array<const char*, 4> kStatuses = {"optimal", "feasible", "infeasible", "stopped"};

const std::map<std::string, std::size_t PlannerKnobs::*> kKnobs{{"max_lower_sets", &PlannerKnobs::max_lower_sets},
                                                                {"max_partials", &PlannerKnobs::max_partials},
                                                                {"candidates", &PlannerKnobs::candidates},
                                                                {"bound_work", &PlannerKnobs::bound_work}};

void set_option(SolveOptions& options, PlannerKnobs& turned, const std::string& name, const py::handle& value) {
  if (name == "planner") {
    options.planner = value.cast<std::string>();
  } else if (name == "budget_bytes") {
    options.budget_bytes = value.cast<std::optional<std::int64_t>>();
  } else if (name == "host_budget_bytes") {
    options.host_budget_bytes = value.cast<std::int64_t>();
  } else if (name == "judge") {
    options.judge = named<Judge>("judge", kJudges, value.cast<std::string>());
  } else if (name == "objective") {
    options.objective = named<Objective>("objective", kObjectives, value.cast<std::string>());
  } else if (name == "keep_last") {
    options.keep_last = value.cast<bool>();
  } else if (name == "work") {
    options.work = value.cast<std::size_t>();
  } else if (const auto knob = kKnobs.find(name); knob != kKnobs.end()) {
    turned.*knob->second = value.cast<std::size_t>();
  } else {
    throw py::type_error("unknown option '" + name + "'");
  }
}

// Takes options out of keyword arguments: what is not given stays at the library's default.
SolveOptions options_of(const py::kwargs& given) {
  SolveOptions options;
  PlannerKnobs turned;
  for (const auto& [key, value] : given) {
    const auto name = key.cast<std::string>();
    try {
      set_option(options, turned, name, value);
    } catch (const py::cast_error&) {
      throw py::type_error("option '" + name + "': " + py::repr(value).cast<std::string>() + " is of the wrong type");
    }
  }
  options.knobs = knobs(turned);
  return options;
}

// solve() or curve(): `run` is called without the interpreter's lock.
template <typename Found>
void bind_planner(py::module_& module, const char* name,
                  Found (*run)(const Graph& graph, const Costs& costs, const SolveOptions& options), const char* doc) {
  module.def(
      name,
      [run](const Graph& graph, const Costs& costs, py::object should_stop, py::object progress,
            const py::kwargs& given) {
        SolveOptions options = options_of(given);
        Callbacks callbacks(std::move(should_stop), std::move(progress));
        callbacks.attach(options);
        auto found = [&] {
          const py::gil_scoped_release unlocked;
          return run(graph, costs, options);
        }();
        callbacks.rethrow();
        return found;
      },
      py::arg("graph"), py::arg("costs"), py::kw_only(), py::arg("should_stop") = py::none(),
      py::arg("progress") = py::none(), doc);
}

py::dict stats_of(const Solution& found) {
  py::dict stats;
  stats["nodes"] = found.stats.nodes;
  stats["lower_sets"] = found.stats.lower_sets;
  stats["partials"] = found.stats.partials;
  stats["candidates"] = found.stats.candidates;
  return stats;
}

void bind_solution(py::module_& module) {
  py::class_<Formula>(module, "Formula", "What a paper's formulas say of a plan.")
      .def_readonly("overhead", &Formula::overhead, "Time recomputed.")
      .def_readonly("peak_bytes", &Formula::peak_bytes)
      .def_readonly("cached_bytes", &Formula::cached_bytes)
      .def_readonly("blocks", &Formula::blocks);
  py::class_<Solution>(module, "Solution", "What a planner found.")
      .def_property_readonly(
          "status", [](const Solution& s) { return kStatuses[static_cast<std::size_t>(s.status)]; },
          "'optimal', 'feasible', 'infeasible' or 'stopped'.")
      .def_property_readonly("found", &Solution::found, "Whether there is a plan within the budget.")
      .def_readonly("plan", &Solution::plan, "For the graph, or for complete_backward() of it if it is forward-only.")
      .def_readonly("simulation", &Solution::simulation)
      .def_readonly("budget_bytes", &Solution::budget_bytes, "As asked for, or the smallest feasible one.")
      .def_property_readonly(
          "smallest_budget_bytes",
          [](const Solution& s) -> std::optional<std::int64_t> {
            if (s.smallest_budget_bytes == 0) return std::nullopt;
            return s.smallest_budget_bytes;
          },
          "Known to be feasible; None: not known.")
      .def_property_readonly(
          "smallest_plan",
          [](const Solution& s) -> std::optional<Plan> {
            if (s.smallest_plan.actions.empty()) return std::nullopt;
            return s.smallest_plan;
          },
          "If nothing fits, the plan whose peak is smallest_budget_bytes; otherwise None.")
      .def_readonly("planner", &Solution::planner)
      .def_readonly("formula", &Solution::formula)
      .def_readonly("overhead_error", &Solution::overhead_error, "0 unless times were rounded.")
      .def_readonly("lower_bound_ns", &Solution::lower_bound_ns,
                    "No plan with backward in the order of this one is faster within the budget; None: not known.")
      .def_property_readonly("gap_ns", &Solution::gap_ns,
                             "How much faster another plan of this order could be at most; None: not known.")
      .def_readonly("floor_bytes", &Solution::floor_bytes, "No plan has a lower peak; 0: not known.")
      .def_readonly("reordered", &Solution::reordered,
                    "Whether the plan runs backward in another order than the captured one.")
      .def_readonly("message", &Solution::message, "Why the search stopped, why the budget is infeasible, or a caveat.")
      .def_property_readonly("stats", &stats_of, "Counts of the work done.")
      .def("__repr__", [](const Solution& s) {
        return std::string("<reprise.Solution: ") + kStatuses[static_cast<std::size_t>(s.status)] + " by " + s.planner +
               ", peak_bytes=" + std::to_string(s.simulation.peak_bytes) + ">";
      });
  py::class_<Curve>(module, "Curve", "Best plans over all budgets, smallest peak first.")
      .def_readonly("points", &Curve::points)
      .def_readonly("stopped", &Curve::stopped)
      .def_readonly("message", &Curve::message);
}

}  // namespace

void bind_solve(py::module_& module) {
  bind_solution(module);
  module.def("planner_names", &planner_names, "The planners, as solve() takes them.");
  bind_planner(
      module, "solve", &solve,
      "The fastest plan whose simulated peak fits budget_bytes, or the plan of least peak if no budget is given.\n\n"
      "Options: planner, budget_bytes, host_budget_bytes, judge, objective, keep_last, max_lower_sets, max_partials,\n"
      "candidates, work, bound_work. With a host_budget_bytes above 0 and costs with a link, the plan may store "
      "values\n"
      "in so much of the host's memory.\n"
      "should_stop() is asked from time to time, and true ends the search; progress(done, total) is told of its\n"
      "course. What either raises ends the search too, and comes out of here; so does Ctrl-C.");
  bind_planner(module, "curve", &curve,
               "Time against memory: the best plans over all budgets. The options are those of solve(); budget_bytes "
               "is ignored.");
}

}  // namespace reprise::bindings
