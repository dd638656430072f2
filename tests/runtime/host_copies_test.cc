// Compares steps that store values in the host's memory with plain libtorch training, on CUDA, or anywhere with the
// fake of fake_host_link.cc.
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "reprise/torch/errors.h"
#include "runtime/device/host_link.h"
#include "runtime/training.h"
#include "support/small_tests.h"

namespace reprise::test {
namespace {

constexpr std::int64_t kHostBytes = std::int64_t{1} << 30;

class HostCopies : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_host_link(test_device())) GTEST_SKIP() << "there is no link to the host";
    at::globalContext().setDeterministicCuDNN(true);
  }
};

// A budget between the least that recomputation reaches and the plain peak. The search comes to its end, so that what
// is found does not depend on the machine.
StepOptions inside(TrainingStep& step, double share, std::int64_t host_bytes = kHostBytes) {
  const std::int64_t full = step.plan({}).peak_bytes;
  const std::int64_t least = step.try_plan({.budget_bytes = 1, .planning_seconds = 2}).smallest_budget_bytes;
  const auto budget = least + static_cast<std::int64_t>(share * static_cast<double>(full - least));
  return {.budget_bytes = budget, .host_budget_bytes = host_bytes, .planning_seconds = 600};
}

using MakeCase = Case (*)();
// Under a sanitizer, searches of plans for the others take minutes.
const std::vector<MakeCase> kCases = kSmallTests ? std::vector<MakeCase>{in_place_case}
                                                 : std::vector<MakeCase>{resnet_case, attention_case, in_place_case};

TEST_F(HostCopies, TrainBitForBitInsideTheBudget) {
  for (const MakeCase make : kCases) {
    std::int64_t stored = 0;
    for (const double share : kSmallTests ? std::vector{0.5} : std::vector{0.3, 0.6}) {
      const Case plain = make();
      // What plain training leaves on the device counts as well, so it is there before the budget is chosen.
      const Trained expected = train(plain, plainly(plain), sgd);
      const Case network = make();
      TrainingStep step = capture(network.module, network.loss, network.batch(1));
      const StepOptions options = inside(step, share);
      const StepSummary planned = step.plan(options);
      stored += planned.host_bytes;
      EXPECT_LE(planned.host_bytes, kHostBytes);
      std::int64_t highest = 0;
      const auto run = [&](const Batch& batch) {
        at::Tensor loss = step.run(batch);
        EXPECT_EQ(step.measured_peak_bytes(), step.summary().peak_bytes);
        highest = std::max(highest, step.measured_peak_bytes());
        return loss;
      };
      expect_same(expected, train(network, run, sgd));
      EXPECT_LE(highest, *options.budget_bytes);
    }
    // On a real link, values so small are not worth a copy.
    if (test_device().is_cpu()) {
      EXPECT_GT(stored, 0);
    }
  }
}

TEST_F(HostCopies, AddUpGradientsOfMicroBatches) {
  const Case plain = kCases.front()();
  const Case network = kCases.front()();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  step.plan(inside(step, 0.5));
  expect_same(train(plain, plainly(plain), sgd, 3), train(network, planned_run(step), sgd, 3));
}

TEST_F(HostCopies, AreNeverSlowerThanRecomputationAlone) {
  const Case network = kCases.front()();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  StepOptions options = inside(step, 0.3);
  const std::int64_t with = step.plan(options).time_ns;
  options.host_budget_bytes = 0;
  const StepSummary without = step.plan(options);
  EXPECT_EQ(without.host_bytes, 0);
  EXPECT_LE(with, without.time_ns);
}

TEST_F(HostCopies, StayInsideTheHostsBudget) {
  const Case network = kCases.front()();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  const StepOptions options = inside(step, 0.3, std::int64_t{64} << 10);
  const StepSummary planned = step.plan(options);
  EXPECT_LE(planned.host_bytes, options.host_budget_bytes);
  step.run(network.batch(1));
  EXPECT_EQ(step.measured_peak_bytes(), step.summary().peak_bytes);
}

TEST(HostCopiesOnTheCpu, AreRefused) {
  if (has_host_link(test_device())) GTEST_SKIP() << "there is a link to the host";
  const Case network = resnet_case();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  EXPECT_EQ(
      input_error([&] { step.plan({.host_budget_bytes = 1 << 30}); }),
      "host_budget needs an accelerator: the model is on cpu, where the budget is the host's memory already. Leave "
      "host_budget out");
  step.plan({});
  step.run(network.batch(1));
}

TEST(HostCopiesOnTheCpu, CannotBeLessThanNothing) {
  const Case network = resnet_case();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  EXPECT_EQ(input_error([&] { step.plan({.host_budget_bytes = -1}); }), "a budget cannot be negative");
}

}  // namespace
}  // namespace reprise::test
