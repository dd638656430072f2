#include "solve/auto/prefix_cuts.h"

#include <algorithm>

namespace reprise::detail {

PrefixCuts::PrefixCuts(const StepModel& model, Measure measure)
    : model_(model), last_read_(model.num_values(), OpId{0}) {
  for (OpId op{0}; op < model.caller; ++op) {
    for (const ValueId v : model.inputs(op)) last_read_[v] = op;
  }
  ByOp<std::int64_t> change(index(model.caller) + 1, 0);
  ByOp<std::int64_t> made(index(model.caller) + 1, 0);
  for (const ValueId v : model.droppable_values) {
    if (model.producer[v] < model.caller) made[model.producer[v]] += model.weight[v];
    if (model.producer[v] >= last_read_[v]) continue;
    change[model.producer[v]] += model.weight[v];
    change[last_read_[v]] -= model.weight[v];
  }
  std::int64_t bytes = 0;
  std::int64_t progress = 0;
  for (OpId op{0}; op < model.caller; ++op) {
    across_.push_back(bytes += change[op]);
    progress_.push_back(progress += measure == Measure::kTime ? model.ops[op].time_ns : made[op]);
  }
}

ByValue<std::uint8_t> PrefixCuts::kept(std::uint32_t stretches) const {
  ByValue<std::uint8_t> kept(model_.num_values(), 0);
  if (progress_.empty()) return kept;
  const double stretch = static_cast<double>(progress_.back()) / stretches;
  for (std::uint32_t i = 1; i < stretches; ++i) {
    // Within a third of a stretch of the division.
    const auto place = [&](double at) {
      const auto it = std::ranges::lower_bound(progress_, static_cast<std::int64_t>(at * stretch));
      return std::min<std::ptrdiff_t>(it - progress_.begin(), static_cast<std::ptrdiff_t>(progress_.size()) - 1);
    };
    const auto least = std::min_element(across_.begin() + place(i - 0.34), across_.begin() + place(i + 0.34) + 1);
    const OpId cheapest = op_id(static_cast<std::size_t>(least - across_.begin()));
    for (const ValueId v : model_.droppable_values) {
      if (model_.producer[v] <= cheapest && last_read_[v] > cheapest) kept[v] = 1;
    }
  }
  return kept;
}

}  // namespace reprise::detail
