// Where everything that a plan makes lies inside one block of memory, the arena: offsets that are known before the step
// runs, so that nothing has to be allocated while it does.
//
//   const Placement found = place(graph, costs, plan, {});
//   // found.arena_bytes is at least found.load_bytes, the most that is live at once, and mostly equal to it
//
// Everything here is counted, never timed: equal input gives equal offsets on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reprise/costs.h"
#include "reprise/graph.h"
#include "reprise/ids.h"
#include "reprise/plan.h"

namespace reprise {

struct PlaceOptions {
  std::int64_t alignment_bytes = 512;  // a power of two; offsets are multiples of it, and sizes are rounded up to it
  // What outlives the step is stacked down from the top of the arena in the order in which it is made, so that the rest
  // of the arena is one piece when the step is over.
  bool outliving_on_top = true;
  std::size_t work = 80'000'000;  // how many placed buffers the search looks at (no clock)
};

// Something that needs memory from time `begin` until just before time `end`.
struct Buffer {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::int64_t bytes = 0;
  bool outlives = false;  // it stays after the last time of all, whatever its `end` says

  friend bool operator==(const Buffer&, const Buffer&) = default;
};

struct Packing {
  std::vector<std::int64_t> offsets{};  // by buffer; 0 for a buffer without bytes
  std::int64_t arena_bytes = 0;         // where the highest ends
  std::int64_t load_bytes = 0;  // the highest sum of what is live at once, in rounded sizes; no arena is smaller
  std::size_t work = 0;         // as in the options

  friend bool operator==(const Packing&, const Packing&) = default;
};

// Buffers that share a time never overlap. Throws InputError if a buffer ends before it begins or has a negative size,
// the sizes together reach 2^62, or the alignment is not a power of two up to 2^30.
[[nodiscard]] Packing pack(std::span<const Buffer> buffers, const PlaceOptions& options);

// The memory that a run takes: for an output that it does not write over an input, or for its workspace.
struct Address {
  std::size_t action = 0;    // of the plan: the run
  ValueId value = kNoValue;  // the output; kNoValue: the workspace
  std::int64_t offset = 0;

  friend bool operator==(const Address&, const Address&) = default;
};

// Outputs that write over an input lie where that input lies. There are no addresses for what has no bytes, and for
// what lies outside the arena: values that are there at the start, everything that the caller's op makes or takes, and
// memory that is held by the caller at any time, from the first version in it to the last.
struct Placement {
  std::vector<Address> addresses{};  // in the order of the runs, outputs before the workspace
  std::int64_t arena_bytes = 0;
  std::int64_t alignment_bytes = 0;
  std::int64_t load_bytes = 0;

  friend bool operator==(const Placement&, const Placement&) = default;
};

// REQUIRES: validate(graph, plan) found nothing. Throws InputError as pack() does, and if the costs do not belong to
// the graph.
[[nodiscard]] Placement place(const Graph& graph, const Costs& costs, const Plan& plan, const PlaceOptions& options);

// The most that lies outside the arena at once. With the arena this is what a step takes that has one. REQUIRES and
// throws as place() does.
[[nodiscard]] std::int64_t bytes_outside(const Graph& graph, const Costs& costs, const Plan& plan);

// What is wrong with the addresses, or nothing: whether each request of the plan has exactly one, inside the arena and
// at a multiple of the alignment, nothing live overlaps, and the load is as said. It replays the plan and shares no
// code with place(). REQUIRES: validate(graph, plan) found nothing. Throws InputError if the costs do not belong to the
// graph.
[[nodiscard]] std::optional<std::string> validate_addresses(const Graph& graph, const Costs& costs, const Plan& plan,
                                                            const Placement& placement);

}  // namespace reprise
