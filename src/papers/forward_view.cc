#include "papers/forward_view.h"

#include <algorithm>
#include <numeric>

namespace reprise::detail {
namespace {

class ViewBuilder {
 public:
  ViewBuilder(const Graph& graph, const Costs& costs)
      : graph_(graph), costs_(costs), last_op_(graph.num_ops(), kNoOp) {}

  ForwardView build() {
    group_ops();
    number_nodes();
    add_costs();
    add_edges();
    return std::move(view_);
  }

 private:
  [[nodiscard]] bool is_node_op(OpId op) const { return graph_.phase(op) == Phase::kForward && !graph_.once(op); }

  // Joins every op to the ops it overwrites. A group is named by its last op, the only one other nodes read from.
  void group_ops() {
    members_.resize(graph_.num_ops());
    for (std::size_t i = 0; i < graph_.num_ops(); ++i) {
      const OpId op = op_id(i);
      last_op_[i] = op;
      if (!is_node_op(op)) continue;
      members_[i].push_back(op);
      for (const ValueId v : graph_.outputs(op)) {
        const ValueId old = graph_.overwrites(v);
        if (old != kNoValue && dies_into(old, op)) join(last_op_[index(graph_.producer(old))], op);
      }
    }
  }

  // `old` is never wanted again after `op`, and nothing but `op` reads from the group that made it.
  [[nodiscard]] bool dies_into(ValueId old, OpId op) const {
    const OpId maker = graph_.producer(old);
    if (maker == kNoOp || !is_node_op(maker) || graph_.is_output(old) || graph_.held(old)) return false;
    for (const OpId reader : graph_.readers(old)) {
      if (graph_.phase(reader) != Phase::kForward) return false;
    }
    const OpId group = last_op_[index(maker)];
    if (group == op) return true;
    for (const OpId member : members_[index(group)]) {
      for (const ValueId made : graph_.outputs(member)) {
        for (const OpId reader : graph_.readers(made)) {
          const bool inside = reader == op || last_op_[index(reader)] == group;
          if (is_node_op(reader) && !inside) return false;
        }
      }
    }
    return true;
  }

  void join(OpId group, OpId op) {
    if (group == op) return;
    auto& mine = members_[index(op)];
    auto& theirs = members_[index(group)];
    for (const OpId member : theirs) last_op_[index(member)] = op;
    mine.insert(mine.end(), theirs.begin(), theirs.end());
    theirs.clear();
    std::ranges::sort(mine);
  }

  void number_nodes() {
    view_.node_of_op.assign(graph_.num_ops(), kNoNode);
    NodeId next = 0;
    for (const auto& ops : members_) {
      if (ops.empty()) continue;
      for (const OpId op : ops) view_.node_of_op[index(op)] = next;
      view_.ops.push_row(ops);
      ++next;
    }
    view_.time.assign(next, 0);
    view_.bytes.assign(next, 0);
  }

  void add_costs() {
    for (std::size_t i = 0; i < graph_.num_ops(); ++i) {
      const NodeId node = view_.node_of_op[i];
      if (node == kNoNode) continue;
      view_.time[node] += costs_.time_ns[i];
      for (const ValueId v : graph_.outputs(op_id(i))) {
        view_.bytes[node] += costs_.value_bytes[index(v)];
        const ValueId old = graph_.overwrites(v);
        const bool joined =
            old != kNoValue && graph_.producer(old) != kNoOp && view_.node_of_op[index(graph_.producer(old))] == node;
        if (joined) view_.bytes[node] -= costs_.value_bytes[index(old)];
      }
    }
  }

  void add_edges() {
    std::vector<std::vector<NodeId>> succs(view_.num_nodes());
    std::vector<NodeId> preds;
    for (NodeId node = 0; node < view_.num_nodes(); ++node) {
      preds.clear();
      for (const OpId op : view_.ops[node]) {
        for (const ValueId v : graph_.inputs(op)) {
          const OpId maker = graph_.producer(v);
          const NodeId from = maker == kNoOp ? kNoNode : view_.node_of_op[index(maker)];
          if (from != kNoNode && from != node) preds.push_back(from);
        }
      }
      std::ranges::sort(preds);
      preds.erase(std::unique(preds.begin(), preds.end()), preds.end());
      view_.preds.push_row(preds);
      for (const NodeId from : preds) succs[from].push_back(node);
    }
    for (const auto& row : succs) view_.succs.push_row(row);
  }

  const Graph& graph_;
  const Costs& costs_;
  std::vector<OpId> last_op_;               // of the group an op belongs to
  std::vector<std::vector<OpId>> members_;  // of the group named by its last op
  ForwardView view_;
};

}  // namespace

std::int64_t ForwardView::total_time() const { return std::accumulate(time.begin(), time.end(), std::int64_t{0}); }
std::int64_t ForwardView::total_bytes() const { return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}); }

ForwardView forward_view(const Graph& graph, const Costs& costs) { return ViewBuilder(graph, costs).build(); }

std::vector<std::uint8_t> cached_nodes(const ForwardView& view, const Blocks& blocks) {
  std::vector<std::uint8_t> cached(view.num_nodes(), 0);
  for (NodeId v = 0; v < view.num_nodes(); ++v) {
    for (const NodeId w : view.succs[v]) {
      if (blocks.block[w] > blocks.block[v]) cached[v] = 1;
    }
  }
  return cached;
}

}  // namespace reprise::detail
