// What happens in a step under a plan, counted for people: memory run by run, what is live at the peak, what crosses
// from forward to backward, what is computed again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reprise/graph.h"
#include "reprise/plan.h"
#include "reprise/report.h"
#include "reprise/simulate.h"

namespace reprise::detail {

struct StepRun {
  OpId op;
  bool again;                 // not the op's first
  std::size_t action;         // of the plan
  std::int64_t begin_ns;      // of a start: when the device comes to it
  std::int64_t during_bytes;  // highest while it ran
  std::int64_t after_bytes;   // when the frees after it are done
};

// One decision of the plan: an op that runs more than once.
struct Recomputed {
  OpId op;
  std::int64_t runs = 0;                // after the first
  std::int64_t cost_ns = 0;             // the time of these runs
  std::int64_t peak_if_kept_bytes = 0;  // at most, if only its results were kept from the first run on
};

struct StepStory {
  Simulation total{};
  std::int64_t start_bytes = 0;
  std::vector<StepRun> runs{};
  std::optional<std::size_t> peak_run{};  // none: the peak is at the start
  std::vector<ValueId> live_at_peak{};    // largest first
  std::vector<ValueId> live_at_caller{};  // made by forward ops and not the caller's
  std::vector<Recomputed> recomputed{};   // in the order of the ops
  bool reordered = false;                 // first runs are not in the order of the graph
};

[[nodiscard]] StepStory tell(const Graph& graph, const Costs& costs, const Plan& plan);

// Throws InputError if there is a measured step that does not belong to this plan.
void check_measured(const ReportInput& input);

// The user's name for where an op comes from: the module's path, or, in a graph without any, the op's own name.
[[nodiscard]] std::string_view module_name(const Graph& graph, OpId op);
// What it does there: its name without the number that tells it from others of its kind.
[[nodiscard]] std::string_view kind_name(const Graph& graph, OpId op);
// The op that a value is named after: the op that makes it, or, if it exists at the start, its first reader. kNoOp if
// nothing uses it.
[[nodiscard]] OpId known_by(const Graph& graph, ValueId value);

}  // namespace reprise::detail
