#include "solve/auto/incremental.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "reprise/graph_builder.h"
#include "reprise/io.h"
#include "support/random.h"
#include "support/random_step.h"

namespace reprise::test {
namespace {

using detail::Choice;
using detail::Cost;
using detail::Evaluator;
using detail::IncrementalEvaluator;
using detail::Label;
using detail::StepModel;

double excess_of(const Evaluator& evaluator, std::int64_t budget) {
  double sum = 0;
  for (const std::int64_t bytes : evaluator.profile()) {
    sum += static_cast<double>(std::max<std::int64_t>(0, bytes - budget));
  }
  return sum;
}

Label any_label(Random& random) { return static_cast<Label>(random.below(detail::kLabels)); }

// Tries changes of one to four labels on one base, and compares each with an evaluation of the whole step.
void expect_as_evaluated(const Graph& step, const Costs& costs, Random& random, int& compared) {
  const StepModel model(step, costs);
  if (model.droppable_values.empty()) return;
  Evaluator evaluator(model);
  IncrementalEvaluator incremental(model);
  Choice base = plain_choice(model);
  for (Label& label : base.labels) label = random.below(2) == 0 ? Label::kKeep : any_label(random);
  if (!incremental.rebase(base)) return;
  ASSERT_EQ(incremental.attempt({}), evaluator.evaluate(base));
  for (int i = 0; i < 12; ++i) {
    Choice other = base;
    std::vector<IncrementalEvaluator::Change> changes;
    for (std::int64_t left = random.between(1, 4); left > 0; --left) {
      const auto size = static_cast<std::int64_t>(model.droppable_values.size());
      const ValueId v = model.droppable_values[static_cast<std::size_t>(random.below(size))];
      if (std::ranges::find(changes, v, &IncrementalEvaluator::Change::value) != changes.end()) continue;
      changes.push_back({v, any_label(random)});
      other.labels[v] = changes.back().label;
    }
    const Cost expected = evaluator.evaluate(other);
    ASSERT_EQ(incremental.attempt(changes), expected) << format_graph(step, costs);
    if (expected == Cost{}) continue;
    ASSERT_EQ(incremental.excess(expected.peak_bytes / 2), excess_of(evaluator, expected.peak_bytes / 2));
    EXPECT_EQ(incremental.attempt(changes, expected.peak_bytes), expected);
    ++compared;
  }
}

TEST(IncrementalEvaluatorTest, SaysWhatTheEvaluatorSays) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 1500 && !testing::Test::HasFatalFailure(); ++seed) {
    Random random(seed);
    const StepOptions options{.forward_ops = random.between(2, 60), .backward_ops = random.between(1, 90)};
    const auto [step, costs] = random_step(options, [&](std::int64_t bound) { return random.below(bound); });
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_as_evaluated(step, costs, random, compared);
  }
  EXPECT_GT(compared, 5000);
}

TEST(IncrementalEvaluatorTest, LooksAtFewWindowsOfALongChain) {
  GraphBuilder b("long chain");
  constexpr std::size_t kLayers = 1000;
  std::vector<ValueId> x{b.arriving(10)};
  for (std::size_t i = 0; i < kLayers; ++i) {
    x.push_back(b.value(10));
    b.op({.name = "f", .time_ns = 1, .inputs = {x[i]}, .outputs = {x[i + 1]}});
  }
  ValueId gradient = b.value(10);
  b.op({.name = "caller", .phase = Phase::kCaller, .outputs = {gradient}});
  for (std::size_t i = kLayers; i > 0; --i) {
    const ValueId next = b.value(10);
    b.op({.name = "g", .phase = Phase::kBackward, .time_ns = 1, .inputs = {x[i - 1], gradient}, .outputs = {next}});
    gradient = next;
  }
  b.output(gradient);
  const auto [step, costs] = b.build();
  const StepModel model(step, costs);
  IncrementalEvaluator incremental(model);
  ASSERT_TRUE(incremental.rebase(plain_choice(model)));
  const std::size_t before = incremental.work();
  const std::vector<IncrementalEvaluator::Change> changes{{x[500], Label::kHold}};
  EXPECT_EQ(incremental.attempt(changes).time_ns, model.step_time_ns + 1);
  EXPECT_LT(8 * (incremental.work() - before), before);
}

}  // namespace
}  // namespace reprise::test
