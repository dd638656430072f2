// What a run of the online method knows of a step before it begins: which results may be taken away, how long each
// value is wanted, and who is next to whom.
//
// A value is *evictable* if its op may run again, does not depend on what the caller's op makes, and its memory is the
// step's own. All others are *roots*: gradients, and what is there from the start, comes from ops that run once, or
// lies in memory of the caller. A root stays for as long as a run might read it, also one that only computes something
// again.
//
// On x -> a -> b -> loss, with x arriving and b read by a backward op 4 (op 0 makes a, op 1 makes b, op 2 the loss, op
// 3 is the caller's): a is wanted up to op 1, b up to op 4, and x is needed up to op 4 too, because b may be computed
// again from it by way of a.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/by_id.h"
#include "graph/csr.h"
#include "reprise/costs.h"
#include "reprise/graph.h"

namespace reprise::detail {

struct OnlineView {
  // Both must outlive it; the graph has a caller's op.
  OnlineView(const Graph& graph, const Costs& costs);

  [[nodiscard]] std::int64_t bytes(ValueId v) const { return costs.value_bytes[index(v)]; }
  // What the largest op takes together with what is resident: below this, trying is in vain.
  [[nodiscard]] std::int64_t floor_bytes() const;

  const Graph& graph;
  const Costs& costs;
  ByValue<std::uint8_t> evictable;
  // The last op of the program that reads the value; its own op if none does. Step outputs: beyond all ops.
  ByValue<std::uint32_t> wanted_until;
  // The last op before which a run may read the value, to compute something again or for the program.
  ByValue<std::uint32_t> needed_until;
  Csr<ValueId> ended_by;    // by op: what nobody wants, or for a root needs, after it
  Csr<ValueId> neighbours;  // by value: evictable values it is computed from, and that are computed from it
  std::int64_t start_bytes = 0;

 private:
  void find_evictable();
  void find_ends();
  void find_neighbours();
};

}  // namespace reprise::detail
