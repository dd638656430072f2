// Absent values that are next to each other, as components with the cost of all their values: what it may take to
// compute one of them again. Union-find with a sum per root, by weight, with path halving.
//
//   a - b - c, all absent, at costs 1, 2 and 4: one component of 7. When b comes back, it is 5: that a and c are no
//   longer connected is ignored, as in the paper, because union-find cannot split.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace reprise::detail {

class Components {
 public:
  using Node = std::uint32_t;

  // A component of its own. A value gets a new node each time that it goes.
  Node add(double cost) {
    nodes_.push_back({.parent = static_cast<Node>(nodes_.size()), .weight = 1, .cost = cost});
    return static_cast<Node>(nodes_.size() - 1);
  }
  void join(Node a, Node b) {
    a = root(a);
    b = root(b);
    if (a == b) return;
    if (nodes_[a].weight < nodes_[b].weight) std::swap(a, b);
    nodes_[b].parent = a;
    nodes_[a].weight += nodes_[b].weight;
    nodes_[a].cost += nodes_[b].cost;
  }
  void leave(Node node, double cost) { nodes_[root(node)].cost -= cost; }
  [[nodiscard]] double cost(Node root) const { return nodes_[root].cost; }

  [[nodiscard]] Node root(Node node) {
    while (nodes_[node].parent != node) node = nodes_[node].parent = nodes_[nodes_[node].parent].parent;
    return node;
  }
  // Whether this is the first time that the root is met in this round.
  [[nodiscard]] bool first_in_round(Node root, std::uint64_t round) {
    return std::exchange(nodes_[root].round, round) != round;
  }

 private:
  struct Item {
    Node parent;
    std::uint32_t weight;
    double cost;
    std::uint64_t round = 0;
  };
  std::vector<Item> nodes_;
};

}  // namespace reprise::detail
