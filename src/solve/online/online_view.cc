#include "solve/online/online_view.h"

#include <algorithm>

namespace reprise::detail {

OnlineView::OnlineView(const Graph& step, const Costs& step_costs) : graph(step), costs(step_costs) {
  find_evictable();
  find_ends();
  find_neighbours();
}

void OnlineView::find_evictable() {
  ByValue<std::uint8_t> in_pinned_memory(graph.num_values(), 0);
  evictable.assign(graph.num_values(), 0);
  ByValue<std::uint8_t> gradient(graph.num_values(), 0);
  for (ValueId v{0}; index(v) < graph.num_values(); ++v) {
    in_pinned_memory[v] = graph.pinned(v) ? 1 : 0;
    if (graph.residence(v) != Residence::kPlanned) start_bytes += bytes(v);
  }
  for (OpId op{0}; index(op) < graph.num_ops(); ++op) {
    const bool seeded =
        op == graph.caller_op() || std::ranges::any_of(graph.inputs(op), [&](ValueId v) { return gradient[v] != 0; });
    for (const ValueId v : graph.outputs(op)) {
      const ValueId old = graph.overwrites(v);
      if (old != kNoValue) in_pinned_memory[v] |= in_pinned_memory[old];
      gradient[v] = seeded ? 1 : 0;
      evictable[v] = in_pinned_memory[v] == 0 && !seeded && !graph.once(op) ? 1 : 0;
    }
  }
}

// One scan backwards: when an op is visited, the ends of its outputs are known.
void OnlineView::find_ends() {
  const auto beyond = static_cast<std::uint32_t>(graph.num_ops() + 1);
  wanted_until.assign(graph.num_values(), 0);
  for (const ValueId v : graph.step_outputs()) wanted_until[v] = beyond;
  needed_until = wanted_until;
  for (std::size_t i = graph.num_ops(); i-- > 0;) {
    const auto now = static_cast<std::uint32_t>(i);
    std::uint32_t until = now;
    for (const ValueId v : graph.outputs(op_id(i))) {
      wanted_until[v] = std::max(wanted_until[v], now);
      needed_until[v] = std::max(needed_until[v], now);
      if (evictable[v] != 0) until = std::max(until, needed_until[v]);
    }
    for (const ValueId v : graph.inputs(op_id(i))) {
      wanted_until[v] = std::max(wanted_until[v], now);
      needed_until[v] = std::max(needed_until[v], until);
    }
  }
  std::vector<std::vector<ValueId>> rows(graph.num_ops());
  for (ValueId v{0}; index(v) < graph.num_values(); ++v) {
    const std::uint32_t end = evictable[v] != 0 ? wanted_until[v] : needed_until[v];
    const bool nobody_reads_it = graph.residence(v) != Residence::kPlanned && graph.readers(v).empty();
    if (end < graph.num_ops() && !nobody_reads_it) rows[end].push_back(v);
  }
  for (const auto& row : rows) ended_by.push_row(row);
}

void OnlineView::find_neighbours() {
  std::vector<ValueId> row;
  for (ValueId v{0}; index(v) < graph.num_values(); ++v) {
    row.clear();
    if (evictable[v] != 0) {
      for (const ValueId parent : graph.inputs(graph.producer(v))) row.push_back(parent);
      for (const OpId reader : graph.readers(v)) {
        for (const ValueId child : graph.outputs(reader)) row.push_back(child);
      }
      std::ranges::sort(row);
      row.erase(std::unique(row.begin(), row.end()), row.end());
      std::erase_if(row, [&](ValueId other) { return evictable[other] == 0; });
    }
    neighbours.push_row(row);
  }
}

std::int64_t OnlineView::floor_bytes() const {
  std::int64_t pinned = 0;
  ByValue<std::uint8_t> in_resident_memory(graph.num_values(), 0);
  for (ValueId v{0}; index(v) < graph.num_values(); ++v) {
    if (graph.residence(v) != Residence::kResident) continue;
    in_resident_memory[v] = 1;
    pinned += bytes(v);
  }
  std::int64_t floor = start_bytes;
  for (OpId op{0}; index(op) < graph.num_ops(); ++op) {
    std::int64_t during = pinned + costs.workspace_bytes[index(op)];
    for (const ValueId v : graph.inputs(op)) {
      if (in_resident_memory[v] == 0) during += bytes(v);
    }
    for (const ValueId v : graph.outputs(op)) {
      const ValueId old = graph.overwrites(v);
      if (old == kNoValue) during += bytes(v);
      if (old != kNoValue) in_resident_memory[v] = in_resident_memory[old];
    }
    floor = std::max(floor, during);
  }
  return floor;
}

}  // namespace reprise::detail
