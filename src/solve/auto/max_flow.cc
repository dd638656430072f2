#include "solve/auto/max_flow.h"

#include <algorithm>

namespace reprise::detail {

std::uint32_t MaxFlow::add_arc(std::uint32_t from, std::uint32_t to) {
  from_.push_back(from);
  to_.push_back(to);
  capacity_.push_back(0);
  return static_cast<std::uint32_t>(from_.size() - 1);
}

void MaxFlow::freeze(std::uint32_t nodes) {
  begin_.assign(nodes + 1, 0);
  for (std::size_t i = 0; i < from_.size(); ++i) {
    ++begin_[from_[i] + 1];
    ++begin_[to_[i] + 1];
  }
  for (std::uint32_t n = 0; n < nodes; ++n) begin_[n + 1] += begin_[n];
  std::vector<std::uint32_t> end(begin_.begin(), begin_.end() - 1);
  arcs_.assign(2 * from_.size(), {});
  place_.assign(from_.size(), 0);
  for (std::size_t i = 0; i < from_.size(); ++i) {
    const std::uint32_t forth = end[from_[i]]++;
    const std::uint32_t back = end[to_[i]]++;
    arcs_[forth] = {.to = to_[i], .back = back, .left = 0};
    arcs_[back] = {.to = from_[i], .back = forth, .left = 0};
    place_[i] = forth;
  }
}

std::int64_t MaxFlow::solve() {
  const std::int64_t most = kUnlimited / 2 / static_cast<std::int64_t>(place_.size() + 1);
  for (std::size_t i = 0; i < place_.size(); ++i) {
    arcs_[place_[i]].left = capacity_[i] == kUnlimited ? kUnlimited : std::min(capacity_[i], most);
    arcs_[arcs_[place_[i]].back].left = 0;
  }
  std::int64_t flow = 0;
  while (measure()) {
    next_.assign(begin_.begin(), begin_.end() - 1);
    flow += push();
    if (flow >= kUnlimited) break;
  }
  return flow;
}

// Distances to the sink along arcs that have something left.
bool MaxFlow::measure() {
  distance_.assign(begin_.size() - 1, kFar);
  queue_.assign(1, kSink);
  distance_[kSink] = 0;
  for (std::size_t head = 0; head < queue_.size(); ++head) {
    const std::uint32_t node = queue_[head];
    work_ += begin_[node + 1] - begin_[node];
    for (std::uint32_t a = begin_[node]; a < begin_[node + 1]; ++a) {
      const std::uint32_t from = arcs_[a].to;
      if (distance_[from] != kFar || arcs_[arcs_[a].back].left == 0) continue;
      distance_[from] = distance_[node] + 1;
      queue_.push_back(from);
    }
  }
  return distance_[kSource] != kFar;
}

// The next arc of `node` that has something left and comes nearer.
void MaxFlow::advance(std::uint32_t node) {
  std::uint32_t& a = next_[node];
  const std::uint32_t nearer = distance_[node] - 1;
  while (a < begin_[node + 1] && (arcs_[a].left == 0 || distance_[arcs_[a].to] != nearer)) {
    ++a;
    ++work_;
  }
}

std::int64_t MaxFlow::push() {
  std::int64_t total = 0;
  path_.clear();
  std::uint32_t node = kSource;
  while (true) {
    if (node == kSink) {
      std::int64_t most = kUnlimited;
      for (const std::uint32_t a : path_) most = std::min(most, arcs_[a].left);
      std::size_t full = path_.size();
      for (std::size_t i = path_.size(); i-- > 0;) {
        arcs_[path_[i]].left -= most;
        arcs_[arcs_[path_[i]].back].left += most;
        if (arcs_[path_[i]].left == 0) full = i;
      }
      total += most;
      work_ += path_.size();
      if (full == path_.size()) return total;  // unlimited all the way
      node = arcs_[arcs_[path_[full]].back].to;
      path_.resize(full);
    }
    advance(node);
    if (next_[node] < begin_[node + 1]) {
      path_.push_back(next_[node]);
      node = arcs_[next_[node]].to;
      continue;
    }
    if (path_.empty()) return total;
    node = arcs_[arcs_[path_.back()].back].to;
    path_.pop_back();
    ++next_[node];
  }
}

}  // namespace reprise::detail
