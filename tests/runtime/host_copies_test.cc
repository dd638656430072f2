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

// A network with so many parameters that its optimizer's state is as much as its values.
Case wide_case() {
  torch::manual_seed(7);
  nn::Sequential net(nn::Linear(64, 256), nn::Tanh(), nn::Linear(256, 256), nn::Tanh(), nn::Linear(256, 256),
                     nn::Tanh(), nn::Linear(256, 8));
  net->to(test_device());
  const auto loss = [net](const Batch& batch) mutable { return F::cross_entropy(net->forward(batch[0]), batch[1]); };
  const auto batch = [](std::int64_t seed) -> Batch {
    torch::manual_seed(seed);
    return {torch::randn({256, 64}).to(test_device()), torch::randint(8, {256}, at::kLong).to(test_device())};
  };
  return {net.ptr(), loss, batch};
}

// Trains with Adam, whose state may wait in the host's memory from the second step on.
struct Parking {
  Case network = wide_case();
  std::unique_ptr<torch::optim::Optimizer> optimizer = adam(network.module->parameters());
  TrainingStep step = capture(network.module, network.loss, network.batch(1));

  Parking() {
    step.plan({.optimizer = optimizer.get()});
    take_step(1);
    optimizer->zero_grad();
  }
  [[nodiscard]] StepOptions within(std::int64_t budget_bytes, std::int64_t host_bytes) const {
    return {.budget_bytes = budget_bytes,
            .host_budget_bytes = host_bytes,
            .optimizer = optimizer.get(),
            .park_optimizer = true,
            .planning_seconds = 600};
  }
  std::int64_t least(std::int64_t host_bytes) { return step.try_plan(within(1, host_bytes)).smallest_budget_bytes; }
  at::Tensor take_step(std::int64_t seed) {
    optimizer->zero_grad();
    at::Tensor loss = step.run(network.batch(seed));
    optimizer->step();
    return loss;
  }
};

TEST_F(HostCopies, ParkTheOptimizersStateBitForBit) {
  const Case plain = wide_case();
  const auto plain_optimizer = adam(plain.module->parameters());
  std::vector<at::Tensor> expected;
  for (std::int64_t seed = 1; seed < 6; ++seed) {
    plain_optimizer->zero_grad();
    expected.push_back(plainly(plain)(plain.batch(seed)).detach());
    plain_optimizer->step();
  }
  Parking parking;
  const std::int64_t alone = parking.least(0), together = parking.least(kHostBytes);
  ASSERT_LT(together, alone);
  const std::int64_t budget = (together + alone) / 2;  // in which recomputation alone would not do
  EXPECT_GT(parking.step.plan(parking.within(budget, kHostBytes)).parked_bytes, 0);
  for (std::int64_t seed = 2; seed < 6; ++seed) {
    EXPECT_TRUE(same_bits(expected[static_cast<std::size_t>(seed) - 1], parking.take_step(seed)));
    EXPECT_EQ(parking.step.measured_peak_bytes(), parking.step.summary().peak_bytes);
    EXPECT_LE(parking.step.measured_peak_bytes(), budget);
    EXPECT_GT(parking.step.summary().parked_bytes, 0);
  }
  const auto parameters = parking.network.module->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_TRUE(same_bits(plain.module->parameters()[i], parameters[i]));
  }
}

TEST_F(HostCopies, ParkNothingThatTheBudgetHasRoomFor) {
  Parking parking;
  const std::int64_t full = parking.step.plan({.optimizer = parking.optimizer.get()}).peak_bytes;
  const StepSummary planned = parking.step.plan(parking.within(full, kHostBytes));
  EXPECT_EQ(planned.parked_bytes, 0);
  EXPECT_EQ(planned.host_bytes, 0);
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
