// Least cut between two nodes, many times on one network with other capacities.
//
// Dinic's method: breadth first from the sink gives each node its distance; depth first along arcs that come one nearer
// pushes flow until none is left; repeat while the source is reached. On s -> a (3), a -> b (2), b -> t (4) one round
// pushes 2 and the cut is {s, a} | {b, t}. O(V^2 E) in the worst case; the networks here have short paths, and a round
// is a few passes over the arcs.
//
// Dinic, "Algorithm for solution of a problem of maximum flow in networks with power estimation", Soviet Mathematics
// Doklady 11, 1970. Tested by tests/unit/solve/auto/max_flow_test.cc against all cuts of small networks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace reprise::detail {

class MaxFlow {
 public:
  static constexpr std::int64_t kUnlimited = std::int64_t{1} << 60;
  static constexpr std::uint32_t kSource = 0;
  static constexpr std::uint32_t kSink = 1;
  static constexpr double kUnitsPerNs = 1024;

  // A time as a capacity. It is rounded down and limited to what an integer holds, because a smaller capacity only
  // makes a smaller bound.
  [[nodiscard]] static std::int64_t units(double ns) {
    return static_cast<std::int64_t>(std::min(ns * kUnitsPerNs, 0x1p58));
  }

  // Nodes are 0 .. count-1. Arcs get ids from 0 in the order of the calls; after freeze() there are no more.
  std::uint32_t add_arc(std::uint32_t from, std::uint32_t to);
  void freeze(std::uint32_t nodes);

  // A capacity so large that the sum over all arcs would not fit is reduced; kUnlimited is exempt.
  void set_capacity(std::uint32_t arc, std::int64_t capacity) { capacity_[arc] = capacity; }
  // The value of the least cut; at least kUnlimited if every cut contains an unlimited arc.
  std::int64_t solve();
  // Whether the node lies on the sink's side of the last cut; of several least cuts it is the one nearest to the sink.
  [[nodiscard]] bool with_sink(std::uint32_t node) const { return distance_[node] != kFar; }
  [[nodiscard]] std::size_t work() const { return work_; }  // arcs looked at, ever

 private:
  static constexpr std::uint32_t kFar = 0xFFFFFFFFU;
  struct Arc {
    std::uint32_t to;
    std::uint32_t back;  // index of the arc the other way
    std::int64_t left;
  };
  bool measure();
  std::int64_t push();
  void advance(std::uint32_t node);

  std::vector<std::uint32_t> from_;
  std::vector<std::uint32_t> to_;
  std::vector<std::int64_t> capacity_;
  std::vector<std::uint32_t> place_;  // of each arc in arcs_
  std::vector<std::uint32_t> begin_;  // by node
  std::vector<Arc> arcs_;
  std::vector<std::uint32_t> next_;
  std::vector<std::uint32_t> distance_;  // to the sink
  std::vector<std::uint32_t> queue_;
  std::vector<std::uint32_t> path_;  // arcs from the source
  std::size_t work_ = 0;
};

}  // namespace reprise::detail
