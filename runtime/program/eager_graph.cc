#include "runtime/program/eager_graph.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "reprise/graph_builder.h"

namespace reprise {
namespace {

// "add" and "add_7", and not addmm, nor addcmul.
bool adds(const Graph& graph, OpId op) {
  const std::string_view name = graph.op_name(op);
  if (graph.phase(op) != Phase::kBackward || !name.starts_with("add")) return false;
  const std::string_view rest = name.substr(3);
  return rest.empty() ||
         (rest.size() > 1 && rest.front() == '_' && rest.find_first_not_of("0123456789", 1) == std::string_view::npos);
}

std::set<ValueId> inputs_of(const Graph& graph, OpId op) { return {graph.inputs(op).begin(), graph.inputs(op).end()}; }

// Whether the second of two calls reads the same as the first, except for the input.
bool is_second_half(const Graph& graph, OpId first, OpId second) {
  const auto is_convolution = [&](OpId op) { return graph.op_name(op).starts_with("convolution_backward"); };
  if (!is_convolution(first) || !is_convolution(second)) return false;
  const std::set<ValueId> all = inputs_of(graph, first);
  const std::set<ValueId> some = inputs_of(graph, second);
  return some.size() < all.size() && std::ranges::includes(all, some);
}

std::vector<std::vector<OpId>> whole_ops(const Graph& graph) {
  std::vector<std::vector<OpId>> parts;
  for (std::size_t i = 0; i < graph.num_ops(); ++i) {
    if (!parts.empty() && is_second_half(graph, parts.back().front(), op_id(i))) {
      parts.back().push_back(op_id(i));
    } else {
      parts.push_back({op_id(i)});
    }
  }
  return parts;
}

}  // namespace

EagerGraph eager_graph(const Graph& graph, const std::set<ValueId>& lone_seeds) {
  EagerGraph eager;
  std::set<ValueId> in_place;
  for (std::size_t i = 0; i < graph.num_ops(); ++i) {
    const OpId op = op_id(i);
    const auto outputs = graph.outputs(op);
    const bool sums = adds(graph, op);
    const bool is_view =
        sums && std::ranges::all_of(graph.inputs(op), [&](ValueId v) { return lone_seeds.contains(v); });
    if (is_view) eager.views.insert(eager.views.end(), outputs.begin(), outputs.end());
    if ((sums && !is_view) || graph.once(op) || graph.is_wait(op)) in_place.insert(outputs.begin(), outputs.end());
  }
  eager.parts = whole_ops(graph);
  GraphBuilder builder(graph.name());
  for (std::size_t i = 0; i < graph.num_values(); ++i) {
    const ValueId value = value_id(i);
    switch (graph.residence(value)) {
      case Residence::kPlanned:
        (void)builder.value(0);
        break;
      case Residence::kArriving:
        (void)builder.arriving(0);
        break;
      case Residence::kResident:
        (void)builder.resident(0);
        break;
    }
    if (graph.held(value)) builder.hold(value);
  }
  for (std::size_t i = 0; i < graph.num_values(); ++i) {
    const ValueId value = value_id(i);
    const ValueId old = graph.overwrites(value);
    const bool old_is_view = std::ranges::find(eager.views, old) != eager.views.end();
    if (old != kNoValue && in_place.contains(value) && !old_is_view) builder.overwrite(value, old);
  }
  for (const std::string& scope : graph.scopes()) (void)builder.scope(scope);
  for (const auto& parts : eager.parts) {
    const OpId op = parts.front();
    std::vector<ValueId> outputs;
    for (const OpId part : parts) outputs.insert(outputs.end(), graph.outputs(part).begin(), graph.outputs(part).end());
    (void)builder.op({.name = graph.op_name(op),
                      .scope = graph.scope(op),
                      .phase = graph.phase(op),
                      .once = graph.once(op),
                      .stream = graph.stream(op),
                      .inputs = {graph.inputs(op).begin(), graph.inputs(op).end()},
                      .outputs = std::move(outputs)});
  }
  for (const ValueId value : graph.step_outputs()) builder.output(value);
  eager.graph = builder.build().graph;
  return eager;
}

}  // namespace reprise
