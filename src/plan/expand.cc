#include "plan/expand.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace reprise::detail {
namespace {

Csr<NodeId> nodes_by_block(const Blocks& blocks) {
  std::vector<std::vector<NodeId>> rows(blocks.count);
  for (NodeId v = 0; v < blocks.block.size(); ++v) rows[blocks.block[v]].push_back(v);
  Csr<NodeId> result;
  for (const auto& row : rows) result.push_row(row);
  return result;
}

void append(std::vector<OpId>& runs, std::span<const OpId> ops) { runs.insert(runs.end(), ops.begin(), ops.end()); }

// All ops up to and including the caller's.
std::vector<OpId> forward_runs(const Graph& step) {
  std::vector<OpId> runs;
  for (std::size_t i = 0; i <= index(step.caller_op()); ++i) runs.push_back(op_id(i));
  return runs;
}

// The ops of several nodes, in execution order.
void append_nodes(std::vector<OpId>& runs, const ForwardView& view, std::span<const NodeId> nodes) {
  const auto begin = static_cast<std::ptrdiff_t>(runs.size());
  for (const NodeId v : nodes) append(runs, view.ops[v]);
  std::sort(runs.begin() + begin, runs.end());
}

// Nodes whose values stay from forward to backward.
std::vector<std::uint8_t> kept_nodes(const ForwardView& view, const Blocks& blocks, bool keep_last) {
  std::vector<std::uint8_t> kept = cached_nodes(view, blocks);
  for (NodeId v = 0; v < view.num_nodes(); ++v) {
    if (keep_last && blocks.block[v] + 1 == blocks.count) kept[v] = 1;
  }
  return kept;
}

std::vector<NodeId> forgotten_nodes(std::span<const NodeId> nodes, std::span<const std::uint8_t> kept) {
  std::vector<NodeId> result;
  std::ranges::copy_if(nodes, std::back_inserter(result), [&](NodeId v) { return kept[v] == 0; });
  return result;
}

class PapersExpansion {
 public:
  PapersExpansion(const PapersStep& step, const Blocks& blocks, bool keep_last)
      : step_(step),
        view_(step.view),
        blocks_(blocks),
        members_(nodes_by_block(blocks)),
        kept_(kept_nodes(step.view, blocks, keep_last)),
        present_(kept_),
        backward_of_(blocks.count) {
    for (const Contribution& c : step.backward) backward_of_[blocks.block[c.target]].push_back(c);
  }

  std::vector<OpId> run() {
    run_forward();
    for (std::uint32_t i = blocks_.count; i-- > 0;) {
      append_nodes(runs_, view_, forgotten_nodes(members_[i], kept_));
      for (const NodeId v : members_[i]) present_[v] = 1;
      run_backward(i);
      forget(i);
    }
    return std::move(runs_);
  }

 private:
  // Block by block: what a block forgets is gone before the next begins. `once` ops do not belong to a block; if there
  // are any, forward runs in program order.
  void run_forward() {
    const auto nodes = std::span(view_.node_of_op).first(index(step_.graph.caller_op()));
    if (std::ranges::find(nodes, kNoNode) != nodes.end()) {
      runs_ = forward_runs(step_.graph);
      return;
    }
    for (std::uint32_t i = 0; i < blocks_.count; ++i) append_nodes(runs_, view_, members_[i]);
    runs_.push_back(step_.graph.caller_op());
  }

  // Seeds of the block's sinks, then contributions, consumers from last to first.
  void run_backward(std::uint32_t block) {
    for (const Contribution& c : backward_of_[block]) {
      if (c.seed) runs_.push_back(c.op);
    }
    NodeId rerun = kNoNode;  // the contributions of one consumer follow each other: one rerun serves them all
    for (const Contribution& c : backward_of_[block]) {
      if (c.seed) continue;
      if (step_.reads_own[c.from] != 0 && present_[c.from] == 0 && c.from != rerun) {
        append(runs_, view_.ops[c.from]);
        rerun = c.from;
      }
      runs_.push_back(c.op);
    }
  }

  // After this block pass, only values before the block are needed, and the other inputs of ops that read those.
  void forget(std::uint32_t block) {
    std::vector<std::uint8_t> wanted(view_.num_nodes(), 0);
    const auto before = [&](NodeId v) { return blocks_.block[v] < block; };
    for (NodeId w = 0; w < view_.num_nodes(); ++w) {
      if (before(w) || std::ranges::none_of(view_.preds[w], before)) continue;
      for (const NodeId u : view_.preds[w]) wanted[u] = 1;
    }
    for (NodeId v = 0; v < view_.num_nodes(); ++v) {
      if (!before(v) && wanted[v] == 0) present_[v] = 0;
    }
  }

  const PapersStep& step_;
  const ForwardView& view_;
  const Blocks& blocks_;
  Csr<NodeId> members_;
  std::vector<std::uint8_t> kept_;
  std::vector<std::uint8_t> present_;
  std::vector<std::vector<Contribution>> backward_of_;
  std::vector<OpId> runs_;
};

}  // namespace

std::vector<OpId> expand(const Graph& step, const ForwardView& view, const Blocks& blocks, bool keep_last) {
  const Csr<NodeId> members = nodes_by_block(blocks);
  const std::vector<std::uint8_t> kept = kept_nodes(view, blocks, keep_last);
  std::vector<std::uint8_t> rerun(blocks.count, 0);
  std::vector<std::uint32_t> missing;
  std::vector<OpId> runs = forward_runs(step);
  for (std::size_t i = index(step.caller_op()) + 1; i < step.num_ops(); ++i) {
    missing.clear();
    for (const ValueId v : step.inputs(op_id(i))) {
      const OpId maker = step.producer(v);
      const NodeId node = maker == kNoOp ? kNoNode : view.node_of_op[index(maker)];
      if (node == kNoNode || kept[node] != 0 || rerun[blocks.block[node]] != 0) continue;
      rerun[blocks.block[node]] = 1;
      missing.push_back(blocks.block[node]);
    }
    std::ranges::sort(missing);
    for (const std::uint32_t block : missing) append_nodes(runs, view, forgotten_nodes(members[block], kept));
    runs.push_back(op_id(i));
  }
  return runs;
}

std::vector<OpId> expand(const PapersStep& step, const Blocks& blocks, bool keep_last) {
  return PapersExpansion(step, blocks, keep_last).run();
}

namespace {

// Values that live on from their first run to the end: the caller's, unless something may be written over them.
std::vector<std::uint8_t> lasting_values(const Graph& graph) {
  std::vector<std::uint8_t> lasting(graph.num_values(), 0);
  for (std::size_t i = 0; i < graph.num_values(); ++i) lasting[i] = graph.held(value_id(i)) ? 1 : 0;
  for (std::size_t i = 0; i < graph.num_values(); ++i) {
    const ValueId old = graph.overwrites(value_id(i));
    if (old != kNoValue) lasting[index(old)] = 0;
  }
  return lasting;
}

}  // namespace

std::vector<OpId> without_dead_reruns(const Graph& graph, std::span<const OpId> runs) {
  const std::vector<std::uint8_t> lasting = lasting_values(graph);
  std::vector<std::uint32_t> runs_left(graph.num_ops(), 0);
  for (const OpId op : runs) ++runs_left[index(op)];
  std::vector<std::uint8_t> needed(graph.num_values(), 0);
  for (const ValueId v : graph.step_outputs()) needed[index(v)] = 1;
  std::vector<OpId> alive;
  for (std::size_t i = runs.size(); i-- > 0;) {
    const auto outputs = graph.outputs(runs[i]);
    const bool rerun = --runs_left[index(runs[i])] > 0;
    const auto wanted = [&](ValueId v) { return needed[index(v)] != 0 && lasting[index(v)] == 0; };
    if (rerun && std::ranges::none_of(outputs, wanted)) continue;
    for (const ValueId v : outputs) needed[index(v)] = 0;
    for (const ValueId v : graph.inputs(runs[i])) needed[index(v)] = 1;
    alive.push_back(runs[i]);
  }
  std::ranges::reverse(alive);
  return alive;
}

}  // namespace reprise::detail
