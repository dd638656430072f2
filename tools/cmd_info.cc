// reprise info: what is in a graph.
#include <array>
#include <unordered_set>

#include "commands.h"
#include "reprise/io.h"

namespace reprise::tools {
namespace {

// Ops whose results `op` reads.
std::unordered_set<OpId> makers(const Graph& graph, OpId op) {
  std::unordered_set<OpId> found;
  for (const ValueId value : graph.inputs(op)) {
    if (graph.producer(value) != kNoOp) found.insert(graph.producer(value));
  }
  return found;
}

}  // namespace

int run_info(Options& options) {
  const auto [graph, costs] = load_graph(options.graph);
  std::array<std::int64_t, 3> ops{};    // by phase
  std::array<std::int64_t, 3> bytes{};  // by residence
  std::int64_t time_ns = 0;
  std::size_t edges = 0;
  for (std::size_t i = 0; i < graph.num_ops(); ++i) {
    ++ops[static_cast<std::size_t>(graph.phase(op_id(i)))];
    time_ns += costs.time_ns[i];
    edges += makers(graph, op_id(i)).size();
  }
  for (std::size_t i = 0; i < graph.num_values(); ++i) {
    bytes[static_cast<std::size_t>(graph.residence(value_id(i)))] += costs.value_bytes[i];
  }
  const Solution none = solve(graph, costs, {.planner = "none"});

  const bool papers = graph.forward_only();
  Report report = graph_report(graph);
  report.number("forward_ops", "forward ops", ops[static_cast<std::size_t>(Phase::kForward)])
      .number("backward_ops", "backward ops", ops[static_cast<std::size_t>(Phase::kBackward)])
      .number("nodes", papers ? "nodes" : "", static_cast<std::int64_t>(none.stats.nodes))
      .number("edges", papers ? "edges" : "", static_cast<std::int64_t>(edges))
      .time("time_ns", papers ? "T(V)" : "time", time_ns, papers)
      .bytes("planned_bytes", papers ? "M(V)" : "planned", bytes[static_cast<std::size_t>(Residence::kPlanned)])
      .bytes("resident_bytes", "resident", bytes[static_cast<std::size_t>(Residence::kResident)])
      .bytes("arriving_bytes", "arriving", bytes[static_cast<std::size_t>(Residence::kArriving)])
      .bytes("peak_bytes", "peak, nothing recomputed", none.simulation.peak_bytes);
  write_text("-", text_of(report, options));
  return kFound;
}

}  // namespace reprise::tools
