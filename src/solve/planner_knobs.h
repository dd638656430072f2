// Limits and switches of the planners' searches, for studies and tests; training a model does not need them.
#pragma once

#include <cstddef>
#include <memory>

#include "reprise/solve.h"

namespace reprise {

// Switches of the search; each changes the work, never the answer.
struct Prunings {
  bool dominance = true;     // drop a partial sequence that another beats in time and memory
  bool memory_bound = true;  // drop one that holds more than any completion allows
  bool time_bound = true;    // drop one that cannot end below the time aimed at
  bool incumbent = true;     // begin from the approximate planner's answer
  bool table = true;         // index by overhead where times are small integers
};

// What planner `auto` may use. Switching one off never makes a plan illegal, only slower or larger.
struct AutoTechniques {
  bool cuts = true;          // priced cuts
  bool prefix_cuts = true;   // again with cross sections of forward kept
  bool nesting = true;       // cross sections within cross sections
  bool planners = true;      // the candidates of all other planners
  bool courses = true;       // runs of the online method
  bool aimed_prices = true;  // cuts with prices adjusted to the budget
  bool local_search = true;  // small changes of labels
  bool incremental = true;   // only the effect of a change is looked at
  bool reordering = true;    // other orders of backward ops
  bool bound = true;         // lower_bound_ns and floor_bytes
};

// What planner `online` does beyond what was published. Switching one off changes its plans, never their legality.
struct OnlineRules {
  bool ghosts_first = true;  // what nobody holds any more is taken away before what the program will read
  bool oldest_first = true;  // of several inputs that are missing, the one made first comes back first
};

struct PlannerKnobs {
  // Limits of work: counts, never a clock.
  std::size_t max_lower_sets = 200'000;   // exact planner: above this it answers kStopped
  std::size_t max_partials = 40'000'000;  // above this, times are rounded and overhead_error says by how much
  std::size_t candidates = 48;            // judge simulated: internal budgets tried per objective
  std::size_t bound_work = 20'000'000;    // planner auto: arcs looked at for lower_bound_ns
  Prunings prunings{};
  OnlineRules online{};
  AutoTechniques techniques{};
};

// As SolveOptions takes them.
[[nodiscard]] inline std::shared_ptr<const PlannerKnobs> knobs(PlannerKnobs turned) {
  return std::make_shared<const PlannerKnobs>(turned);
}

[[nodiscard]] inline const PlannerKnobs& knobs_of(const SolveOptions& options) {
  static const PlannerKnobs defaults;
  return options.knobs ? *options.knobs : defaults;
}

}  // namespace reprise
