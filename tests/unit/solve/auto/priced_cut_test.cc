#include "solve/auto/priced_cut.h"

#include <gtest/gtest.h>

#include "reprise/graph_builder.h"
#include "solve/auto/prefix_cuts.h"

namespace reprise::test {
namespace {

using detail::Label;
using detail::PricedCut;
using detail::StepModel;

// x -> conv (time 90) -> y -> relu (time 1) -> z, and backward reads y and z. Each value has 10 bytes; x is resident.
CostedGraph conv_relu_step() {
  GraphBuilder b("conv relu");
  const ValueId x = b.resident(10);
  const ValueId y = b.value(10);
  const ValueId z = b.value(10);
  const ValueId seed = b.value(10);
  const ValueId gradient = b.value(10);
  b.op({.name = "conv", .time_ns = 90, .inputs = {x}, .outputs = {y}});
  b.op({.name = "relu", .time_ns = 1, .inputs = {y}, .outputs = {z}});
  b.op({.name = "caller", .phase = Phase::kCaller, .inputs = {z}, .outputs = {seed}});
  b.op({.name = "backward", .phase = Phase::kBackward, .time_ns = 9, .inputs = {y, z, seed}, .outputs = {gradient}});
  b.output(gradient);
  return b.build();
}

std::vector<Label> labels_at(double price_ns_per_byte) {
  const auto [step, costs] = conv_relu_step();
  const StepModel model(step, costs);
  PricedCut cut(model, model.captured_order);
  detail::ByValue<Label> labels(model.num_values());
  cut.solve(std::vector<double>(2, price_ns_per_byte), {}, labels);
  return {labels[ValueId{1}], labels[ValueId{2}]};
}

TEST(PricedCutTest, DropsWhatIsCheapToMakeFirst) {
  using enum Label;
  EXPECT_EQ(labels_at(0.05), (std::vector<Label>{kKeep, kKeep}));
  EXPECT_EQ(labels_at(0.5), (std::vector<Label>{kKeep, kHold}));
  EXPECT_EQ(labels_at(20), (std::vector<Label>{kHold, kHold}));
}

TEST(PricedCutTest, NeverPaysForWhatIsGiven) {
  const auto [step, costs] = conv_relu_step();
  const StepModel model(step, costs);
  PricedCut cut(model, model.captured_order);
  detail::ByValue<Label> labels(model.num_values());
  detail::ByValue<std::uint8_t> kept(model.num_values(), 0);
  kept[ValueId{1}] = 1;
  cut.solve(std::vector<double>(2, 20.0), kept, labels);
  EXPECT_EQ(labels[ValueId{1}], Label::kKeep);
  EXPECT_EQ(labels[ValueId{2}], Label::kHold);
}

TEST(PrefixCutsTest, TakeTheSmallestCrossSectionNearTheDivision) {
  GraphBuilder b("x(9) -> a(4) -> b(9) -> c(1) -> d(9)");
  ValueId before = b.arriving(9);
  const ValueId first = before;
  std::vector<ValueId> made;
  for (const std::int64_t bytes : {4, 9, 1, 9}) {
    made.push_back(b.value(bytes));
    b.op({.name = "f", .time_ns = 10, .inputs = {before}, .outputs = {made.back()}});
    before = made.back();
  }
  const ValueId seed = b.value(1);
  b.op({.name = "caller", .phase = Phase::kCaller, .inputs = {before}, .outputs = {seed}});
  b.op({.name = "g", .phase = Phase::kBackward, .inputs = {seed, first}, .outputs = {b.value(1)}});
  const auto [step, costs] = b.build();
  const StepModel model(step, costs);
  const detail::ByValue<std::uint8_t> kept = detail::PrefixCuts(model).kept(2);
  for (const ValueId v : made) EXPECT_EQ(kept[v] != 0, v == made[2]);
}

}  // namespace
}  // namespace reprise::test
