#include "place/requests.h"

#include <algorithm>
#include <limits>

#include "reprise/lives.h"

namespace reprise::detail {
namespace {

class Collector {
 public:
  Collector(const Graph& graph, const Costs& costs, const Plan& plan)
      : graph_(graph), costs_(costs), plan_(plan), memory_(graph.num_values(), kOutside) {}

  std::vector<Request> collect() {
    for (const Life& life : lives(graph_, plan_)) add(life);
    for (std::size_t at = 0; at < plan_.actions.size(); ++at) add_workspace(at);
    std::vector<Request> inside;
    for (std::size_t i = 0; i < found_.size(); ++i) {
      if (outside_[i] == 0 && found_[i].buffer.bytes > 0) inside.push_back(found_[i]);
    }
    // Lives begin in the order of the runs and of their outputs, and kNoValue is a workspace.
    std::ranges::stable_sort(inside, {}, [](const Request& request) { return request.buffer.begin; });
    return inside;
  }

 private:
  static constexpr std::size_t kOutside = std::numeric_limits<std::size_t>::max();

  void add(const Life& life) {
    if (!life.first) return;  // there at the start
    const bool is_fetched = plan_.actions[*life.first].fetches();
    const bool made_by_caller = !is_fetched && graph_.producer(life.value) == graph_.caller_op();
    std::size_t memory = kOutside;
    if (life.took_over != kNoValue) {
      memory = memory_[index(life.took_over)];
    } else if (!made_by_caller) {
      memory = found_.size();
      found_.push_back(
          {.buffer = {.begin = *life.first, .bytes = costs_.value_bytes[index(life.value)]}, .value = life.value});
      outside_.push_back(0);
    }
    if (!life.second_copy) memory_[index(life.value)] = memory;
    if (memory == kOutside) return;
    Buffer& buffer = found_[memory].buffer;
    buffer.outlives = !life.last;
    buffer.end = life.second_copy ? *life.first + 1 : life.last.value_or(plan_.actions.size());
    if (graph_.held(life.value) && !life.second_copy) outside_[memory] = 1;
  }

  void add_workspace(std::size_t at) {
    const Action action = plan_.actions[at];
    if (!action.computes() || action.op() == graph_.caller_op()) return;
    const std::int64_t bytes = costs_.workspace_bytes[index(action.op())];
    found_.push_back({.buffer = {.begin = at, .end = at + 1, .bytes = bytes}, .value = kNoValue});
    outside_.push_back(0);
  }

  const Graph& graph_;
  const Costs& costs_;
  const Plan& plan_;
  std::vector<std::size_t> memory_;  // by value: where its latest life lies, in found_
  std::vector<Request> found_;
  std::vector<std::uint8_t> outside_;  // by request
};

}  // namespace

std::vector<Request> requests(const Graph& graph, const Costs& costs, const Plan& plan) {
  return Collector(graph, costs, plan).collect();
}

}  // namespace reprise::detail
