#include "papers/papers_backward.h"

#include <algorithm>
#include <string>
#include <utility>

#include "reprise/error.h"
#include "reprise/graph_builder.h"
#include "reprise/papers.h"

namespace reprise::detail {
namespace {

class Completion {
 public:
  Completion(const Graph& forward, const Costs& costs) : forward_(forward), costs_(costs), builder_(forward.name()) {
    step_.view = forward_view(forward, costs);
  }

  PapersStep build() {
    copy_forward();
    builder_.op({.name = "caller", .phase = Phase::kCaller, .inputs = {}, .outputs = {}});
    const auto nodes = static_cast<NodeId>(step_.view.num_nodes());
    gradient_.assign(nodes, kNoValue);
    step_.reads_own.assign(nodes, 0);
    for (NodeId w = nodes; w-- > 0;) add_backward(w);
    CostedGraph built = builder_.build();
    step_.graph = std::move(built.graph);
    step_.costs = std::move(built.costs);
    return std::move(step_);
  }

 private:
  void copy_forward() {
    for (const std::string& path : forward_.scopes()) builder_.scope(path);
    for (std::size_t i = 0; i < forward_.num_values(); ++i) copy_value(value_id(i));
    for (std::size_t i = 0; i < forward_.num_values(); ++i) {
      const ValueId old = forward_.overwrites(value_id(i));
      if (old != kNoValue) builder_.overwrite(value_id(i), old);
    }
    for (std::size_t i = 0; i < forward_.num_ops(); ++i) {
      const OpId op = op_id(i);
      const auto inputs = forward_.inputs(op);
      const auto outputs = forward_.outputs(op);
      builder_.op({.name = forward_.op_name(op),
                   .scope = forward_.scope(op),
                   .time_ns = costs_.time_ns[index(op)],
                   .workspace_bytes = costs_.workspace_bytes[index(op)],
                   .once = forward_.once(op),
                   .backward_reads = forward_.backward_reads(op),
                   .inputs = {inputs.begin(), inputs.end()},
                   .outputs = {outputs.begin(), outputs.end()}});
    }
  }

  void copy_value(ValueId v) {
    switch (forward_.residence(v)) {
      case Residence::kPlanned:
        builder_.value(costs_.value_bytes[index(v)]);
        break;
      case Residence::kArriving:
        builder_.arriving(costs_.value_bytes[index(v)]);
        break;
      case Residence::kResident:
        builder_.resident(costs_.value_bytes[index(v)]);
        break;
    }
    if (forward_.held(v)) builder_.hold(v);
    if (forward_.is_output(v)) builder_.output(v);
  }

  void add_backward(NodeId w) {
    const std::vector<ValueId> reads = backward_reads(w);
    if (step_.view.succs[w].empty()) {
      gradient_[w] = builder_.value(step_.view.bytes[w]);
      add_op({.op = kNoOp, .from = w, .target = w, .seed = true}, {}, gradient_[w]);
    }
    const auto preds = step_.view.preds[w];
    for (auto u = preds.rbegin(); u != preds.rend(); ++u) contribute(w, *u, reads);
    if (preds.empty()) {
      const ValueId arrived = builder_.value(0);
      builder_.output(arrived);
      add_op({.op = kNoOp, .from = w, .target = w, .seed = false}, with_gradient(w, reads), arrived);
    }
  }

  void contribute(NodeId w, NodeId u, const std::vector<ValueId>& reads) {
    std::vector<ValueId> inputs = with_gradient(w, reads);
    const ValueId before = gradient_[u];
    gradient_[u] = builder_.value(step_.view.bytes[u]);
    if (before != kNoValue) {
      inputs.push_back(before);
      builder_.overwrite(gradient_[u], before);
    }
    add_op({.op = kNoOp, .from = w, .target = u, .seed = false}, std::move(inputs), gradient_[u]);
  }

  [[nodiscard]] std::vector<ValueId> with_gradient(NodeId w, std::vector<ValueId> reads) const {
    reads.push_back(gradient_[w]);
    return reads;
  }

  // Forward values that the gradient of node w reads.
  std::vector<ValueId> backward_reads(NodeId w) {
    std::vector<ValueId> reads;
    for (const OpId op : step_.view.ops[w]) {
      const BackwardReads which = forward_.backward_reads(op);
      if (which != BackwardReads::kOutputs) append_outside(w, forward_.inputs(op), reads);
      if (which != BackwardReads::kInputs) append_surviving(w, op, reads);
    }
    std::ranges::sort(reads);
    reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
    return reads;
  }

  void append_outside(NodeId w, std::span<const ValueId> inputs, std::vector<ValueId>& reads) const {
    for (const ValueId v : inputs) {
      const OpId maker = forward_.producer(v);
      if (maker == kNoOp || step_.view.node_of_op[index(maker)] != w) reads.push_back(v);
    }
  }

  // Outputs of the op that no later op of the same node writes over.
  void append_surviving(NodeId w, OpId op, std::vector<ValueId>& reads) {
    for (const ValueId v : forward_.outputs(op)) {
      const bool overwritten = std::ranges::any_of(forward_.readers(v), [&](OpId reader) {
        return step_.view.node_of_op[index(reader)] == w &&
               std::ranges::any_of(forward_.outputs(reader),
                                   [&](ValueId made) { return forward_.overwrites(made) == v; });
      });
      if (overwritten) continue;
      reads.push_back(v);
      step_.reads_own[w] = 1;
    }
  }

  void add_op(Contribution c, std::vector<ValueId> inputs, ValueId output) {
    const OpId last = step_.view.ops[c.from].back();
    std::string name = (c.seed ? "seed " : "gradient ") + forward_.op_name(last);
    if (c.target != c.from) name += " -> " + forward_.op_name(step_.view.ops[c.target].back());
    c.op = builder_.op({.name = std::move(name),
                        .scope = forward_.scope(last),
                        .phase = Phase::kBackward,
                        .inputs = std::move(inputs),
                        .outputs = {output}});
    step_.backward.push_back(c);
  }

  const Graph& forward_;
  const Costs& costs_;
  GraphBuilder builder_;
  std::vector<ValueId> gradient_;  // newest version per node
  PapersStep step_;
};

}  // namespace

PapersStep papers_step(const Graph& forward, const Costs& costs) {
  PapersStep step = Completion(forward, costs).build();
  step.costs.link = costs.link;
  return step;
}

}  // namespace reprise::detail

namespace reprise {

CostedGraph complete_backward(const Graph& forward, const Costs& costs) {
  check_costs(forward, costs);
  if (!forward.forward_only()) throw InputError("the graph has a backward pass already");
  detail::PapersStep step = detail::papers_step(forward, costs);
  return {.graph = std::move(step.graph), .costs = std::move(step.costs)};
}

}  // namespace reprise
