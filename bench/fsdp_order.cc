#include "fsdp_order.h"

#include <string_view>
#include <utility>

namespace reprise::bench {
namespace {

constexpr std::string_view kLayers = "layers.";

// What a unit does from where it begins to where another one does.
struct Pass {
  std::string_view unit;  // "layers.3", or empty for the root
  Phase phase;
  std::vector<OpId> gathers{};  // with the casts before them
  std::vector<OpId> arrivals{};
  std::vector<OpId> ops{};
  std::vector<OpId> reductions{};  // with the casts before them
  std::vector<OpId> reduced{};
};

std::string_view unit_of(const Graph& graph, OpId op, Root root) {
  const std::string_view scope = graph.scope_name(op);
  if (scope.starts_with(kLayers)) return scope.substr(0, scope.find('.', kLayers.size()));
  if (root == Root::kWhole) return {};
  return scope == "embedding" ? scope : "head";
}

void append(std::vector<OpId>& to, const std::vector<OpId>& from) { to.insert(to.end(), from.begin(), from.end()); }

bool belongs(const Pass& pass, std::string_view unit, Phase phase) {
  // A layer's backward makes again what its forward made.
  return unit == pass.unit && (unit.starts_with(kLayers) || phase == pass.phase);
}

void take(const Graph& graph, Pass& pass, OpId op) {
  const bool is_cast = graph.op_name(op).starts_with("to_");
  if (graph.is_wait(op)) {
    (graph.once(op) ? pass.reduced : pass.arrivals).push_back(op);
  } else if (graph.is_start(op) || is_cast) {
    const bool reduces = is_cast ? graph.phase(op) == Phase::kBackward : graph.once(op);
    (reduces ? pass.reductions : pass.gathers).push_back(op);
  } else {
    pass.ops.push_back(op);
  }
}

std::vector<Pass> passes_of(const Graph& graph, std::span<const OpId> runs, Root root) {
  std::vector<Pass> passes;
  for (const OpId op : runs) {
    const std::string_view unit = unit_of(graph, op, root);
    const Phase phase = graph.phase(op);
    if (passes.empty() || !belongs(passes.back(), unit, phase)) passes.push_back({.unit = unit, .phase = phase});
    take(graph, passes.back(), op);
  }
  for (Pass& pass : passes) {
    if (!pass.unit.empty()) continue;
    append(passes.front().gathers, std::exchange(pass.gathers, {}));
    append(passes.front().arrivals, std::exchange(pass.arrivals, {}));
    append(passes.back().reductions, std::exchange(pass.reductions, {}));
    append(passes.back().reduced, std::exchange(pass.reduced, {}));
  }
  return passes;
}

}  // namespace

std::vector<OpId> fsdp_order(const Graph& graph, std::span<const OpId> runs, Root root) {
  const std::vector<Pass> passes = passes_of(graph, runs, root);
  std::vector<OpId> made = passes.front().gathers;
  std::vector<OpId> on_their_way;
  for (std::size_t i = 0; i < passes.size(); ++i) {
    append(made, passes[i].arrivals);
    if (i + 1 < passes.size()) append(made, passes[i + 1].gathers);
    append(made, passes[i].ops);
    if (passes[i].reductions.empty()) continue;
    append(made, std::exchange(on_their_way, passes[i].reduced));
    append(made, passes[i].reductions);
  }
  append(made, on_their_way);
  return made;
}

}  // namespace reprise::bench
