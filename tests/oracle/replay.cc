#include "oracle/replay.h"

#include <algorithm>
#include <utility>

namespace reprise::test {
namespace {

// The value of a node, or its gradient.
struct Buffer {
  bool gradient;
  int node;
  friend auto operator<=>(const Buffer&, const Buffer&) = default;
};
using Buffers = std::set<Buffer>;

struct Action {
  bool compute = true;  // If false, the action forgets `buffers`.
  Buffers reads{};
  Buffers buffers{};      // what is written or forgotten
  std::int64_t time = 0;  // the time of a forward compute
};

Buffers values(const NodeSet& nodes) {
  Buffers found;
  for (const int v : nodes) found.insert({false, v});
  return found;
}

// Writes down the schedule with its forgets, and keeps track of which buffers exist.
class Script {
 public:
  explicit Script(const Dag& dag) : dag_(dag) {}

  std::vector<Action> write(const Sequence& sequence) {
    NodeSet before;
    for (const NodeSet& now : sequence) {
      const NodeSet block = minus(now, before);
      for (const int v : block) forward(v);
      forget(values(minus(block, boundary(dag_, now))));
      before = now;
    }
    for (std::size_t i = sequence.size(); i-- > 0;) {
      const NodeSet earlier = i == 0 ? NodeSet{} : sequence[i - 1];
      backward_stage(minus(sequence[i], earlier));
      forget_after_stage(earlier);
    }
    return std::move(actions_);
  }

 private:
  void forward(int v) {
    actions_.push_back({.reads = values(predecessors(dag_, {v})), .buffers = {{false, v}}, .time = dag_.time[v]});
    there_.insert({false, v});
  }

  void forget(const Buffers& buffers) {
    for (const Buffer& b : buffers) {
      if (there_.erase(b) != 0) actions_.push_back({.compute = false, .buffers = {b}});
    }
  }

  void backward_stage(const NodeSet& block) {
    for (const int v : block) {
      if (!there_.contains({false, v})) forward(v);
    }
    for (const int v : block) {
      if (!successors(dag_, {v}).empty()) continue;
      actions_.push_back({.buffers = {{true, v}}});
      there_.insert({true, v});
    }
    for (int w = dag_.size(); w-- > 0;) {
      const NodeSet inputs = predecessors(dag_, {w});
      NodeSet targets;
      std::ranges::set_intersection(inputs, block, std::inserter(targets, targets.end()));
      if (!targets.empty() || (inputs.empty() && block.contains(w))) backward(w, inputs, targets);
    }
  }

  void backward(int w, const NodeSet& inputs, const NodeSet& targets) {
    const BackwardReads which = dag_.reads_of(w);
    Action action{.reads = {{true, w}}};
    if (which != BackwardReads::kOutputs) action.reads.merge(values(inputs));
    if (which != BackwardReads::kInputs) action.reads.insert({false, w});
    for (const int u : targets) action.buffers.insert({true, u});
    const bool rerun = which != BackwardReads::kInputs && !there_.contains({false, w});
    if (rerun) forward(w);
    there_.insert(action.buffers.begin(), action.buffers.end());
    actions_.push_back(std::move(action));
    if (rerun) forget({{false, w}});
  }

  void forget_after_stage(const NodeSet& earlier) {
    const NodeSet still_fed = minus(successors(dag_, earlier), earlier);
    const NodeSet beside = minus(predecessors(dag_, still_fed), earlier);
    Buffers gone;
    for (const Buffer& b : there_) {
      const bool wanted = b.gradient ? still_fed.contains(b.node) : earlier.contains(b.node) || beside.contains(b.node);
      if (!wanted) gone.insert(b);
    }
    forget(gone);
  }

  const Dag& dag_;
  std::vector<Action> actions_;
  Buffers there_;
};

// Moves every forget to an earlier place, just after the last compute before it that reads or writes the buffer.
std::vector<Action> freed_after_last_touch(const std::vector<Action>& actions) {
  std::vector<std::vector<Action>> forgets_after(actions.size());
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].compute) continue;
    const Buffer b = *actions[i].buffers.begin();
    std::size_t touch = i;
    while (!actions[touch].compute || (!actions[touch].reads.contains(b) && !actions[touch].buffers.contains(b)))
      --touch;
    forgets_after[touch].push_back(actions[i]);
  }
  std::vector<Action> moved;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (!actions[i].compute) continue;
    moved.push_back(actions[i]);
    moved.insert(moved.end(), forgets_after[i].begin(), forgets_after[i].end());
  }
  return moved;
}

std::string name(const Buffer& b) { return (b.gradient ? "gradient " : "value ") + std::to_string(b.node); }

}  // namespace

ReplayResult replay(const Dag& dag, const Sequence& sequence, Frees frees) {
  std::vector<Action> actions = Script(dag).write(sequence);
  if (frees == Frees::kAfterLastTouch) actions = freed_after_last_touch(actions);
  ReplayResult result{.extra_time = -dag.total_time()};
  Buffers live;
  for (const Action& action : actions) {
    for (const Buffer& b : action.reads) {
      if (!live.contains(b)) result.error = name(b) + " is read but not there";
    }
    for (const Buffer& b : action.buffers) {
      if (action.compute)
        live.insert(b);
      else
        live.erase(b);
    }
    result.extra_time += action.time;
    std::int64_t held = 0;
    for (const Buffer& b : live) held += dag.bytes[b.node];
    if (action.compute) result.after_compute.push_back(held);
    if (action.compute) result.peak = std::max(result.peak, held);
  }
  if (!live.empty()) result.error = name(*live.begin()) + " is left at the end";
  return result;
}

}  // namespace reprise::test
