#include "runtime/engine/early_gradients.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/program/tensor_memory.h"

namespace reprise {

EarlyGradients::EarlyGradients(const Program& program, std::span<const Action> actions) {
  std::vector<std::optional<std::size_t>> made(program.values.size());
  std::vector<std::size_t> read(program.values.size(), 0);
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].fetches()) made[index(actions[i].value())] = i;
    if (!actions[i].computes()) continue;
    const ProgramOp& op = program.ops[index(actions[i].op())];
    if (op.kind == ProgramOp::Kind::kHandOver) continue;
    for (const ValueId value : reads(op)) read[index(value)] = i;
    if (op.phase != Phase::kBackward) continue;
    for (const ValueId value : makes(op)) made[index(value)] = i;
  }
  for (std::size_t i = 0; i < program.gradients.size(); ++i) {
    if (!program.gradients[i]) continue;
    const std::size_t value = index(program.gradients[i]->value);
    if (made[value]) ready_.push_back({*made[value], i, read[value] > *made[value]});
  }
  std::ranges::sort(ready_, {}, [](const Ready& ready) { return std::pair(ready.action, ready.gradient); });
}

void EarlyGradients::give(std::size_t action, const Program& program, const GradientTaker& taker,
                          std::vector<at::Tensor>& slots, std::vector<std::uint8_t>& given) const {
  for (const Ready& ready : std::ranges::equal_range(ready_, action, {}, &Ready::action)) {
    if (taker.wants.at(ready.gradient) == 0) continue;
    const TensorUse& use = *program.gradients[ready.gradient];
    at::Tensor& slot = slots[index(use.value)];
    at::Tensor gradient = has_geometry(slot, use.geometry) ? slot : view_of(slot, use.geometry);
    if (!ready.is_read_later) slot.reset();
    given.resize(program.gradients.size(), 0);
    given[ready.gradient] = 1;
    taker.take(ready.gradient, std::move(gradient));
  }
}

}  // namespace reprise
