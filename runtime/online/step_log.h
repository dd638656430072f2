// The calls of one step that ran online, and the graph that the core plans.
//
// A step ends where a backward pass ends that does not keep its graph, and the next one begins there. So what the
// optimizer does belongs to the beginning of the next step, and each part of an accumulated batch is a step.
//
// Values are those that could be computed again; calls that neither read nor make any are in the log, so that the next
// step can be compared with it, and not in the graph. All other memory lies outside: parameters, small results, roots.
// How much that is changes during a step, so the graph has stand-ins for it, in grains.
#pragma once

#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "reprise/costs.h"

namespace reprise::online {

inline constexpr std::uint32_t kNothing = std::numeric_limits<std::uint32_t>::max();

struct LoggedCall {
  struct Made {
    std::uint32_t value = kNothing;
    std::uint32_t over = kNothing;  // the value whose memory it has taken
    friend bool operator==(const Made&, const Made&) = default;
  };
  std::uint64_t signature = 0;  // the operator, whole numbers, and which values and shapes it reads
  std::string name;
  c10::SmallVector<std::uint32_t, 4> reads;  // each value once
  c10::SmallVector<Made, 2> makes;
  std::int64_t cost_ns = 0;
  std::int64_t own_bytes = 0;      // at its highest instant, beyond what it makes
  std::int64_t outside_bytes = 0;  // when it began
  bool repeatable = false;
  int pass = -1;  // the backward pass that it belongs to, if that does not keep its graph
};

struct StepLog {
  std::vector<LoggedCall> calls;
  std::vector<std::int64_t> bytes;  // by value
  std::vector<std::uint32_t> held;  // values that the program holds at the end
};

// Ids of values are those of the log, followed by those of stand-ins.
struct LogGraph {
  CostedGraph costed;
  std::vector<std::uint32_t> call_of;  // by op; kNothing: a stand-in
};
[[nodiscard]] LogGraph graph_of(const StepLog& log, std::int64_t grain_bytes);

}  // namespace reprise::online
