#include "solve/auto/priced_cut.h"

#include <algorithm>
#include <cmath>

namespace reprise::detail {
namespace {

constexpr std::int64_t kTinyShare = 20'000;  // of all bytes that backward reads

}  // namespace

PricedCut::PricedCut(const StepModel& model, std::span<const OpId> order) : model_(model) {
  factor_.assign(model.num_values(), 1);
  find_uses(order);
  find_price_range();
  build();
}

void PricedCut::find_uses(std::span<const OpId> order) {
  direct_.assign(model_.num_values(), {});
  for (std::uint32_t turn = 0; turn < order.size(); ++turn) {
    for (const ValueId v : model_.inputs(order[turn])) {
      direct_[v].first = std::min(direct_[v].first, turn + 1);
      direct_[v].last = turn + 1;
      ++direct_[v].count;
    }
  }
  uses_ = direct_;
  // From the last forward op to the first: a recomputation is wanted at the first use of what it makes.
  for (std::size_t i = index(model_.caller); i-- > 0;) {
    const OpId op = op_id(i);
    std::uint32_t wanted = kNone;
    for (const ValueId v : model_.outputs(op)) wanted = std::min(wanted, uses_[v].first);
    if (wanted == kNone || !model_.ops[op].repeatable) continue;
    for (const ValueId v : model_.inputs(op)) {
      if (direct_[v].count > 0) continue;
      uses_[v].first = std::min(uses_[v].first, wanted);
      uses_[v].last = std::max(uses_[v].last, wanted);
      ++uses_[v].count;
    }
  }
  std::int64_t read_bytes = 0;
  for (const ValueId v : model_.droppable_values) read_bytes += direct_[v].count > 0 ? model_.weight[v] : 0;
  tiny_.assign(model_.num_values(), 0);
  for (const ValueId v : model_.droppable_values) {
    tiny_[v] = model_.weight[v] <= read_bytes / kTinyShare ? 1 : 0;
  }
}

void PricedCut::jitter(std::uint64_t seed, double part) {
  std::uint64_t state = seed;
  for (double& factor : factor_) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    factor = 1 + part * (static_cast<double>(state >> 40U) / 0x1p23 - 1);
  }
}

void PricedCut::find_price_range() {
  double least = 1e300;
  double largest = 0;
  for (const ValueId v : model_.droppable_values) {
    if (tiny_[v] != 0 || uses_[v].first == kNone) continue;
    const auto time = static_cast<double>(std::max<std::int64_t>(1, model_.ops[model_.producer[v]].time_ns));
    const double ratio = time / static_cast<double>(std::max<std::int64_t>(1, model_.weight[v]));
    least = std::min(least, ratio);
    largest = std::max(largest, ratio);
  }
  if (largest <= 0) return;
  least_price_ = least;
  largest_price_ = largest;
}

void PricedCut::build() {
  std::uint32_t nodes = 2;
  op_node_.assign(model_.num_ops(), kNone);
  value_node_.assign(model_.num_values(), kNone);
  op_arc_.assign(model_.num_ops(), kNone);
  value_arc_.assign(model_.num_values(), kNone);
  const auto wanted = [&](ValueId v) { return uses_[v].first != kNone && model_.weight[v] > 0 && tiny_[v] == 0; };
  for (OpId op{0}; op < model_.caller; ++op) {
    const auto outputs = model_.outputs(op);
    if (!model_.ops[op].repeatable || std::ranges::none_of(outputs, wanted)) continue;
    op_node_[op] = nodes++;
    op_arc_[op] = flow_.add_arc(MaxFlow::kSource, op_node_[op]);
    for (const ValueId v : model_.inputs(op)) {
      if (!wanted(v)) continue;
      if (value_node_[v] == kNone) {  // made at the start, or by an op that runs only once
        value_node_[v] = nodes++;
        value_arc_[v] = flow_.add_arc(MaxFlow::kSource, value_node_[v]);
      }
      flow_.set_capacity(flow_.add_arc(value_node_[v], op_node_[op]), MaxFlow::kUnlimited);
    }
    for (const ValueId v : outputs) {
      if (!wanted(v)) continue;
      value_node_[v] = nodes++;
      value_arc_[v] = flow_.add_arc(op_node_[op], value_node_[v]);
      if (direct_[v].count > 0) flow_.set_capacity(flow_.add_arc(value_node_[v], MaxFlow::kSink), MaxFlow::kUnlimited);
    }
  }
  flow_.freeze(nodes);
}

// The op runs once and its outputs stay, or it runs at each use, whichever is cheaper.
void PricedCut::price_op(OpId op, std::span<const double> price, ByValue<Label>& labels) {
  const auto time = static_cast<double>(model_.ops[op].time_ns);
  double hold = time;
  std::uint32_t demands = 1;
  for (const ValueId v : model_.outputs(op)) {
    if (value_node_[v] == kNone) continue;
    hold += static_cast<double>(model_.weight[v]) * (price[uses_[v].last] - price[uses_[v].first]);
    demands = std::max(demands, uses_[v].count);
  }
  const double discard = time * demands;
  for (const ValueId v : model_.outputs(op)) labels[v] = discard < hold ? Label::kDiscard : Label::kHold;
  flow_.set_capacity(op_arc_[op], MaxFlow::units(std::min(hold, discard)));
}

void PricedCut::solve(std::span<const double> cumulative_price, const ByValue<std::uint8_t>& kept,
                      ByValue<Label>& labels) {
  std::ranges::fill(labels, Label::kKeep);
  for (OpId op{0}; op < model_.caller; ++op) {
    if (op_node_[op] != kNone) price_op(op, cumulative_price, labels);
  }
  for (ValueId v{0}; index(v) < model_.num_values(); ++v) {
    if (value_node_[v] == kNone) continue;
    const double cost = static_cast<double>(model_.weight[v]) * factor_[v] * cumulative_price[uses_[v].last];
    const bool given = !kept.empty() && kept[v] != 0;
    flow_.set_capacity(value_arc_[v], given ? 0 : MaxFlow::units(cost));
  }
  flow_.solve();
  for (const ValueId v : model_.droppable_values) {
    const std::uint32_t node = value_node_[v];
    const std::uint32_t maker = op_node_[model_.producer[v]];
    const bool again = maker != kNone && flow_.with_sink(maker);
    const bool there = node == kNone || flow_.with_sink(node) || (!kept.empty() && kept[v] != 0);
    if (tiny_[v] != 0 || (there && !again)) labels[v] = Label::kKeep;
    if (node == kNone && uses_[v].first == kNone) labels[v] = Label::kHold;
  }
}

}  // namespace reprise::detail
