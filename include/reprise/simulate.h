// Memory and time of a plan. At a compute, outputs and workspace are allocated while the inputs are still held; the
// peak is the highest of these instants. Then the workspace is freed.
//
// What goes on beside the ops has clocks of its own: copies to the host, copies back, and each communicator (graph.h).
// What belongs to one clock goes one after the other. A start begins when the device comes to it and its communicator
// is free; its wait, like whatever has to wait for a copy (plan.h), waits on the device's clock, which is the time of
// the plan.
//
// REQUIRES: validate(graph, plan) found nothing. Throws InputError if the costs do not belong to the graph, if there is
// no link for a plan that copies, or if the total time of the plan does not fit into 64 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reprise/costs.h"
#include "reprise/graph.h"
#include "reprise/plan.h"

namespace reprise {

struct Simulation {
  std::int64_t peak_bytes = 0;
  std::int64_t time_ns = 0;
  std::int64_t recompute_ns = 0;  // the part of time_ns spent in runs on the device after an op's first
  std::int64_t wait_ns = 0;       // the part of time_ns in which the device waits for copies
  std::int64_t host_peak_bytes = 0;
  std::int64_t exposed_ns = 0;  // the part of time_ns in which the device waits for communicators

  friend bool operator==(const Simulation&, const Simulation&) = default;
};

[[nodiscard]] Simulation simulate(const Graph& graph, const Costs& costs, const Plan& plan);

struct Timeline {
  Simulation total;
  std::int64_t start_bytes = 0;            // resident and arriving values
  std::vector<std::int64_t> during_bytes;  // per action, at its highest instant
  std::vector<std::int64_t> after_bytes;   // per action
  // Per action: when its run, on the device or a communicator, or its copy begins and ends. A free begins, and ends,
  // when nothing has to wait any more.
  std::vector<std::int64_t> begin_ns;
  std::vector<std::int64_t> end_ns;
  std::size_t peak_action = 0;  // the first that reaches the peak
  // Values held at that instant, largest first. Workspace and second copies of live values are not values, so the sum
  // may be below the peak.
  std::vector<ValueId> live_at_peak;
};

[[nodiscard]] Timeline timeline(const Graph& graph, const Costs& costs, const Plan& plan);

// No plan takes less: resident values, and the inputs, outputs and workspace of the op that needs most, run in place if
// it may.
[[nodiscard]] std::int64_t most_of_one_op(const Graph& graph, const Costs& costs);

}  // namespace reprise
