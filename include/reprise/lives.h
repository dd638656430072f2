// From when to when each copy of a value exists under a plan.
//
// On x -> conv -> y -> relu_ over y -> z, planned as `c0 c1! f2` with conv op 0, relu_ op 1 and values x 0, y 1, z 2:
//   x  from the start, to the end        y  from action 0 to 1, which writes over it        z  from action 1 to 2
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "reprise/graph.h"
#include "reprise/ids.h"
#include "reprise/plan.h"

namespace reprise {

struct Life {
  ValueId value;
  std::optional<std::size_t> first{};  // the action that makes or fetches it; none: it is present at the start
  std::optional<std::size_t> last{};   // the action that frees it or writes over it; none: it is present at the end
  ValueId took_over = kNoValue;        // the value whose memory it was written into
  bool second_copy = false;            // made while the value was already live: dropped at once, first == last

  friend bool operator==(const Life&, const Life&) = default;
};

// First come the lives that begin before any action, ordered by value; then the others in the order in which they
// begin. REQUIRES: validate(graph, plan) found nothing.
using Lives = std::vector<Life>;
[[nodiscard]] Lives lives(const Graph& graph, const Plan& plan);

// The plan with the shortest lives for a given order of runs, in which an op may appear several times: every value is
// freed right after its last read before it is made again or the step ends, and an op runs in place if nothing reads
// the value it overwrites any more.
[[nodiscard]] Plan with_shortest_lives(const Graph& graph, std::span<const OpId> runs);

// Before an action, the device waits for a copy of a value: to the host, if the action lets the value go, or back from
// there, if the action is the first that reads or frees it since it was fetched.
struct CopyWait {
  std::size_t action;
  ValueId value;
  bool for_fetch;  // otherwise for its store

  friend bool operator==(const CopyWait&, const CopyWait&) = default;
};

// In the order of the actions. REQUIRES: validate(graph, plan) found nothing.
[[nodiscard]] std::vector<CopyWait> copy_waits(const Graph& graph, const Plan& plan);

// The copy of a value in the host's memory: from its store to the action at which the device waits for the arrival of
// its last fetch, which is the next one that reads or frees the value.
struct HostLife {
  ValueId value;
  std::size_t first;
  std::optional<std::size_t> last{};  // none: nothing waits for it, so it is there until the end

  friend bool operator==(const HostLife&, const HostLife&) = default;
};

// In the order in which they begin. REQUIRES: validate(graph, plan) found nothing.
[[nodiscard]] std::vector<HostLife> host_lives(const Graph& graph, const Plan& plan);

}  // namespace reprise
