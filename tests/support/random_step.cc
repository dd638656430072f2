#include "support/random_step.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "reprise/graph_builder.h"

namespace reprise::test {
namespace {

class StepMaker {
 public:
  explicit StepMaker(const Draw& draw) : draw_(draw), builder_("random step") {}

  CostedGraph make(const StepOptions& options) {
    for (std::int64_t i = draw_(3); i >= 0; --i) readable_.push_back(builder_.resident(size()));
    for (std::int64_t i = draw_(2); i >= 0; --i) add_arriving();
    for (int i = 0; i < options.forward_ops; ++i) add_op(Phase::kForward, i);
    if (chance(40)) add_buffer_update();
    add_caller();
    for (int i = 0; i < options.backward_ops; ++i) add_op(Phase::kBackward, i);
    if (last_ != kNoValue) output(last_);
    return builder_.build();
  }

 private:
  [[nodiscard]] bool chance(int percent) const { return draw_(100) < percent; }
  [[nodiscard]] std::int64_t size() const { return draw_(8) == 0 ? 0 : 1 + draw_(16); }

  ValueId new_value(std::int64_t bytes) {
    bytes_.push_back({builder_.value(bytes), bytes});
    return bytes_.back().first;
  }

  // The bytes of a value that may be overwritten, or -1 if the step does not own the value's memory.
  [[nodiscard]] std::int64_t bytes_of(ValueId v) const {
    for (const auto& [value, bytes] : bytes_) {
      if (value == v) return bytes;
    }
    return -1;
  }

  void add_arriving() {
    const std::int64_t bytes = size();
    const ValueId v = builder_.arriving(bytes);
    if (chance(30)) {
      builder_.hold(v);
    } else {
      bytes_.push_back({v, bytes});
    }
    readable_.push_back(v);
  }

  void output(ValueId v) {
    if (std::ranges::find(outputs_, v) != outputs_.end()) return;
    outputs_.push_back(v);
    builder_.output(v);
  }

  std::vector<ValueId> some_readable() {
    std::vector<ValueId> picked;
    const auto count = static_cast<std::int64_t>(readable_.size());
    for (std::int64_t i = 1 + draw_(3); i > 0; --i) {
      // Mostly a recent value, sometimes any.
      const std::int64_t back = chance(70) ? draw_(std::min<std::int64_t>(4, count)) : draw_(count);
      picked.push_back(readable_[static_cast<std::size_t>(count - 1 - back)]);
    }
    std::ranges::sort(picked);
    picked.erase(std::unique(picked.begin(), picked.end()), picked.end());
    return picked;
  }

  void add_op(Phase phase, int i) {
    OpSpec op{.name = (phase == Phase::kForward ? "f" : "b") + std::to_string(i),
              .phase = phase,
              .time_ns = draw_(20),
              .workspace_bytes = chance(30) ? draw_(12) : 0,
              .once = chance(10),
              .inputs = some_readable()};
    if (op.once) op.time_ns = 0;
    const bool in_place = chance(30);
    const ValueId old = op.inputs[static_cast<std::size_t>(draw_(static_cast<std::int64_t>(op.inputs.size())))];
    const std::int64_t old_bytes = bytes_of(old);
    if (in_place && old_bytes >= 0) {  // The step must not overwrite memory that it does not own.
      op.outputs.push_back(new_value(old_bytes));
      builder_.overwrite(op.outputs.back(), old);
      overwriting_.push_back(op.outputs.back());
    } else {
      op.outputs.push_back(new_value(size()));
    }
    if (chance(20)) op.outputs.push_back(new_value(size()));
    for (const ValueId v : op.outputs) {
      readable_.push_back(v);
      if (chance(phase == Phase::kForward ? 5 : 25)) output(v);
    }
    last_ = op.outputs.back();
    builder_.op(std::move(op));
  }

  // Adds an op that gives resident memory new contents once, as batch norm does with its statistics.
  void add_buffer_update() {
    const std::int64_t bytes = size();
    const ValueId before = builder_.resident(bytes);
    const ValueId after = builder_.value(bytes);
    std::vector<ValueId> inputs = some_readable();
    inputs.push_back(before);
    builder_.overwrite(after, before);
    output(after);
    builder_.op({.name = "update", .once = true, .inputs = std::move(inputs), .outputs = {after}});
  }

  void add_caller() {
    OpSpec op{.name = "caller", .phase = Phase::kCaller, .workspace_bytes = draw_(8)};
    op.inputs = some_readable();
    for (const ValueId v : op.inputs) {
      if (bytes_of(v) >= 0 && chance(30) && last_ == v) hold(v);
    }
    for (std::int64_t i = draw_(2); i >= 0; --i) {
      const ValueId seed = new_value(size());
      op.outputs.push_back(seed);
      readable_.push_back(seed);
      if (chance(50)) hold(seed);
    }
    builder_.op(std::move(op));
  }

  // Lets the caller hold a value. The step must not overwrite it from then on, and if it overwrites another value, it
  // must also be an output.
  void hold(ValueId v) {
    builder_.hold(v);
    if (std::ranges::find(overwriting_, v) != overwriting_.end()) output(v);
    std::erase_if(bytes_, [&](const auto& entry) { return entry.first == v; });
  }

  const Draw& draw_;
  GraphBuilder builder_;
  std::vector<ValueId> readable_;
  std::vector<std::pair<ValueId, std::int64_t>> bytes_;  // the values that may be overwritten, and their bytes
  std::vector<ValueId> outputs_;
  std::vector<ValueId> overwriting_;
  ValueId last_ = kNoValue;
};

}  // namespace

CostedGraph random_step(const StepOptions& options, const Draw& draw) { return StepMaker(draw).make(options); }

}  // namespace reprise::test
