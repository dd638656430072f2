#include "oracle/reference.h"

#include <algorithm>
#include <iterator>

namespace reprise::test {
namespace {

void extend(const std::vector<NodeSet>& family, const NodeSet& whole, Sequence& so_far,
            const std::function<void(const Sequence&)>& visit) {
  const NodeSet last = so_far.empty() ? NodeSet{} : so_far.back();
  if (last == whole) return visit(so_far);
  for (const NodeSet& next : family) {
    if (next.size() <= last.size() || !std::ranges::includes(next, last)) continue;
    so_far.push_back(next);
    extend(family, whole, so_far, visit);
    so_far.pop_back();
  }
}

}  // namespace

NodeSet all_nodes(const Dag& dag) {
  NodeSet nodes;
  for (int v = 0; v < dag.size(); ++v) nodes.insert(v);
  return nodes;
}

NodeSet successors(const Dag& dag, const NodeSet& nodes) {
  NodeSet found;
  for (int w = 0; w < dag.size(); ++w) {
    for (const int u : dag.preds[w]) {
      if (nodes.contains(u)) found.insert(w);
    }
  }
  return found;
}

NodeSet predecessors(const Dag& dag, const NodeSet& nodes) {
  NodeSet found;
  for (const int w : nodes) found.insert(dag.preds[w].begin(), dag.preds[w].end());
  return found;
}

NodeSet boundary(const Dag& dag, const NodeSet& lower_set) {
  NodeSet found;
  for (const int v : predecessors(dag, minus(all_nodes(dag), lower_set))) {
    if (lower_set.contains(v)) found.insert(v);
  }
  return found;
}

NodeSet minus(const NodeSet& a, const NodeSet& b) {
  NodeSet result;
  std::ranges::set_difference(a, b, std::inserter(result, result.end()));
  return result;
}

NodeSet plus(const NodeSet& a, const NodeSet& b) {
  NodeSet result = a;
  result.insert(b.begin(), b.end());
  return result;
}

std::int64_t time_of(const Dag& dag, const NodeSet& nodes) {
  std::int64_t sum = 0;
  for (const int v : nodes) sum += dag.time[v];
  return sum;
}

std::int64_t bytes_of(const Dag& dag, const NodeSet& nodes) {
  std::int64_t sum = 0;
  for (const int v : nodes) sum += dag.bytes[v];
  return sum;
}

std::vector<NodeSet> every_lower_set(const Dag& dag) {
  std::vector<NodeSet> found;
  for (std::uint32_t mask = 0; mask < (1U << dag.size()); ++mask) {
    NodeSet nodes;
    for (int v = 0; v < dag.size(); ++v) {
      if ((mask >> v & 1U) != 0) nodes.insert(v);
    }
    if (minus(predecessors(dag, nodes), nodes).empty()) found.push_back(nodes);
  }
  return found;
}

std::vector<NodeSet> ancestor_family(const Dag& dag) {
  std::set<NodeSet> found{{}, all_nodes(dag)};
  std::vector<NodeSet> closed;
  for (int v = 0; v < dag.size(); ++v) {
    NodeSet nodes{v};
    for (const int p : dag.preds[v]) nodes = plus(nodes, closed[p]);
    closed.push_back(nodes);
    found.insert(nodes);
  }
  return {found.begin(), found.end()};
}

void for_each_sequence(const Dag& dag, const std::vector<NodeSet>& family,
                       const std::function<void(const Sequence&)>& visit) {
  Sequence so_far;
  extend(family, all_nodes(dag), so_far, visit);
}

std::int64_t Cost::peak() const { return passes.empty() ? 0 : *std::ranges::max_element(passes); }

Cost cost_of(const Dag& dag, const Sequence& sequence) {
  Cost cost;
  NodeSet before;  // L_{i-1}
  NodeSet cached;  // U_{i-1}
  for (const NodeSet& now : sequence) {
    const NodeSet block = minus(now, before);
    const NodeSet after = successors(dag, now);
    cost.passes.push_back(bytes_of(dag, cached) + 2 * bytes_of(dag, block) + bytes_of(dag, minus(after, now)) +
                          bytes_of(dag, minus(predecessors(dag, after), now)));
    cost.last_block_time = time_of(dag, minus(block, boundary(dag, now)));
    cost.overhead += cost.last_block_time;
    cached = plus(cached, boundary(dag, now));
    before = now;
  }
  cost.cached = bytes_of(dag, cached);
  return cost;
}

}  // namespace reprise::test
