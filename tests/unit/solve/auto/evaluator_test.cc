#include "solve/auto/evaluator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "plan/liveness.h"
#include "reprise/graph_builder.h"
#include "reprise/io.h"
#include "reprise/simulate.h"
#include "reprise/validate.h"
#include "support/random.h"
#include "support/random_step.h"

namespace reprise::test {
namespace {

using detail::Choice;
using detail::Cost;
using detail::Evaluator;
using detail::Label;
using detail::StepModel;

// x -> a -> b -> c, then backward C (reads c, b), B (reads b, a), A (reads a, x). Every value has 10 bytes and every op
// takes a time of 1.
CostedGraph chain_step() {
  GraphBuilder b("chain");
  const ValueId x = b.arriving(10);
  const ValueId v[] = {x, b.value(10), b.value(10), b.value(10)};
  for (int i = 1; i < 4; ++i) b.op({.name = "f", .time_ns = 1, .inputs = {v[i - 1]}, .outputs = {v[i]}});
  ValueId gradient = b.value(10);
  b.op({.name = "caller", .phase = Phase::kCaller, .outputs = {gradient}});
  for (int i = 3; i > 0; --i) {
    const ValueId next = b.value(10);
    b.op({.name = "g",
          .phase = Phase::kBackward,
          .time_ns = 1,
          .inputs = {v[i - 1], v[i], gradient},
          .outputs = {next}});
    gradient = next;
  }
  b.output(gradient);
  return b.build();
}

std::string names(const Evaluator& evaluator) {
  std::string text;
  for (const OpId op : evaluator.runs()) text += std::to_string(index(op));
  return text;
}

TEST(EvaluatorTest, RecomputesOnDemandAsLabelled) {
  const auto [step, costs] = chain_step();
  const StepModel model(step, costs);
  Evaluator evaluator(model);
  Choice choice = plain_choice(model);
  EXPECT_EQ(evaluator.evaluate(choice), (Cost{.peak_bytes = 60, .time_ns = 6}));
  EXPECT_EQ(names(evaluator), "0123456");
  for (const ValueId v : model.droppable_values) choice.labels[v] = Label::kHold;
  (void)evaluator.evaluate(choice);
  EXPECT_EQ(names(evaluator), "0123012456");
  choice.labels[ValueId{1}] = Label::kDiscard;
  (void)evaluator.evaluate(choice);
  EXPECT_EQ(names(evaluator), "012301240506");
}

// The backward ops in a random order that their inputs allow.
std::vector<OpId> shuffled_order(const StepModel& model, Random& random) {
  std::vector<OpId> left = model.captured_order;
  detail::ByOp<std::uint8_t> made(model.num_ops(), 0);
  for (OpId op{0}; op <= model.caller; ++op) made[op] = 1;
  std::vector<OpId> order;
  bool once_left = false;
  while (!left.empty()) {
    std::vector<std::size_t> ready;
    once_left = false;
    for (std::size_t i = 0; i < left.size(); ++i) {
      const bool once = model.graph.once(left[i]);
      bool all = !(once && once_left);
      once_left = once_left || once;
      for (const ValueId v : model.graph.inputs(left[i])) {
        const OpId maker = model.graph.producer(v);
        all = all && (maker == kNoOp || made[maker] != 0);
      }
      if (all) ready.push_back(i);
    }
    const std::size_t pick = ready[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(ready.size())))];
    made[left[pick]] = 1;
    order.push_back(left[pick]);
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(pick));
  }
  return order;
}

TEST(EvaluatorTest, SaysWhatTheSimulatorSays) {
  std::size_t equal = 0;
  std::size_t all = 0;
  for (int i = 0; i < 600; ++i) {
    Random random(static_cast<std::uint64_t>(i));
    const StepOptions options{.forward_ops = random.between(1, 14), .backward_ops = random.between(0, 14)};
    const auto [step, costs] = random_step(options, [&](std::int64_t bound) { return random.below(bound); });
    const StepModel model(step, costs);
    Evaluator evaluator(model);
    Choice choice = plain_choice(model);
    for (int k = 0; k < 6; ++k) {
      for (Label& label : choice.labels) label = static_cast<Label>(random.below(detail::kLabels));
      if (k > 2) choice.order = shuffled_order(model, random);
      const Cost cost = evaluator.evaluate(choice);
      if (cost == Cost{}) continue;
      const Plan plan = detail::place_frees(step, evaluator.runs());
      const auto violation = validate(step, plan);
      ASSERT_FALSE(violation.has_value()) << violation->message << '\n' << format_graph(step, costs);
      const Simulation truth = simulate(step, costs, plan);
      EXPECT_EQ(cost.time_ns, truth.time_ns) << format_graph(step, costs);
      EXPECT_GE(cost.peak_bytes, truth.peak_bytes) << format_graph(step, costs);
      equal += cost.peak_bytes == truth.peak_bytes ? 1U : 0U;
      ++all;
      // The evaluator may give up if the peak is above the limit, but not if it is at most the limit.
      EXPECT_EQ(evaluator.evaluate(choice, cost.peak_bytes), cost);
    }
  }
  EXPECT_GT(equal * 100, all * 97);  // The others have a buffer whose old contents are read again.
}

}  // namespace
}  // namespace reprise::test
