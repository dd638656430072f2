// Compares steps that store values in the host's memory with plain libtorch training, on CUDA, or anywhere with the
// fake of fake_host_link.cc.
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "reprise/torch/errors.h"
#include "runtime/device/host_link.h"
#include "runtime/program/program_queries.h"
#include "runtime/record/capture_step.h"
#include "runtime/session/optimizer_state.h"
#include "runtime/session/session.h"
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
            .park_optimizer = host_bytes > 0,
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

TEST_F(HostCopies, ReserveNothingForStateThatMayBeAway) {
  const std::int64_t gained = [] {
    Parking parking;
    StepOptions unparked = parking.within(1, kHostBytes);
    unparked.park_optimizer = false;
    return parking.step.try_plan(unparked).smallest_budget_bytes - parking.least(kHostBytes);
  }();
  const Case network = wide_case();
  const auto optimizer = adam(network.module->parameters());
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  StepOptions options{
      .budget_bytes = 1, .host_budget_bytes = kHostBytes, .optimizer = optimizer.get(), .planning_seconds = 600};
  const std::int64_t budget = step.try_plan(options).smallest_budget_bytes - gained / 2;
  options.budget_bytes = budget;
  EXPECT_THROW(step.plan(options), InfeasibleBudget);
  options.park_optimizer = true;
  EXPECT_EQ(step.plan(options).parked_bytes, 0);
  for (std::int64_t seed = 1; seed < 4; ++seed) {
    optimizer->zero_grad();
    step.run(network.batch(seed));
    EXPECT_LE(step.measured_peak_bytes(), budget);
    optimizer->step();
  }
  EXPECT_GT(step.summary().parked_bytes, 0);
}

TEST(HostCopiesOfState, NeedAnOptimizerAndMemoryOfTheHost) {
  const Case network = resnet_case();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  EXPECT_THROW(step.plan({.host_budget_bytes = kHostBytes, .park_optimizer = true}), InputError);
}

// A session whose caller does something between forward and backward, inside a budget for which some of Adam's state
// has to be away.
class OpenParking : public HostCopies {
 protected:
  void SetUp() override {
    HostCopies::SetUp();
    if (IsSkipped()) return;
    network_.loss(batch_).backward();
    optimizer_->step();
    optimizer_->zero_grad();
    for (const at::Tensor& tensor : optimizer_tensors(*optimizer_)) numbers_.push_back(tensor.clone());
    options_->cuda_graphs = CudaGraphs::kOff;
    options_->planning_seconds = options_->waiting_seconds = 600;
    options_->park_optimizer = true;
    options_->measure = false;  // so that plans are the same on every machine
    Surroundings around;
    around.known_tensors = [this] {
      std::vector<at::Tensor> known = state_.tensors, kept = optimizer_tensors(*optimizer_);
      known.insert(known.end(), kept.begin(), kept.end());
      return known;
    };
    around.optimizer_state = [this] { return optimizer_tensors(*optimizer_); };
    session_ = std::make_unique<Session>(CapturedStep{.program = step_.program}, options_, std::move(around));
    const std::int64_t alone = least(0), together = least(kHostBytes);
    options_->budget_bytes = (alone + together) / 2;
  }

  std::int64_t least(std::int64_t host_bytes) {
    options_->budget_bytes = 1;
    options_->host_budget_bytes = host_bytes;
    return session_->plan_ahead(session_->outside_bytes(0)).smallest_budget_bytes;
  }
  void forward(RunningStep& running) {
    const at::NoGradGuard no_grad;
    (void)session_->forward(arguments_of(step_, state_.tensors, batch_), running);
  }
  void backward(RunningStep& running) {
    const at::NoGradGuard no_grad;
    (void)session_->backward(loss_seeds(*step_.program), running);
  }
  // Two steps, of which the second one knows its caller.
  void expect_steps_inside_the_budget() {
    for (int i = 0; i < 2; ++i) {
      RunningStep running;
      forward(running);
      backward(running);
      EXPECT_GT(session_->current()->parked_bytes, 0);
      EXPECT_EQ(session_->measured_peak_bytes(), session_->current()->peak_bytes());
      EXPECT_LE(session_->measured_peak_bytes(), options_->budget_bytes);
    }
    const auto state = optimizer_tensors(*optimizer_);
    for (std::size_t i = 0; i < state.size(); ++i) EXPECT_TRUE(same_bits(state[i], numbers_[i])) << i;
  }

  Case network_ = wide_case();
  std::unique_ptr<torch::optim::Optimizer> optimizer_ = adam(network_.module->parameters());
  Batch batch_ = network_.batch(1);
  ModuleState state_ = state_of(*network_.module);
  StepProgram step_ = capture_step("wide", state_, network_.loss, batch_);
  std::shared_ptr<SessionOptions> options_ = std::make_shared<SessionOptions>();
  std::unique_ptr<Session> session_;
  std::vector<at::Tensor> numbers_;
};

TEST_F(OpenParking, RefusesAnotherStepForWhichStateCannotComeBack) {
  expect_steps_inside_the_budget();
  {
    RunningStep first, second;
    forward(first);
    EXPECT_THROW(forward(second), InfeasibleBudget);
    backward(first);
  }
  {
    RunningStep dropped;
    forward(dropped);
  }
  expect_steps_inside_the_budget();
}

TEST_F(OpenParking, StateThatIsAskedForIsNotTheCallersFromThenOn) {
  expect_steps_inside_the_budget();
  {
    RunningStep running;
    forward(running);
    bring_back_state(*options_);
    EXPECT_THROW(backward(running), BudgetExceeded);
  }
  expect_steps_inside_the_budget();
}

TEST_F(OpenParking, PlansAreUsedAgainForStateOfTheSameSizesAlone) {
  expect_steps_inside_the_budget();
  const auto plan = std::const_pointer_cast<PlanAtWork>(session_->current());
  session_->use(plan);
  expect_steps_inside_the_budget();
  const auto family = session_->make_family();
  EXPECT_EQ(session_->current(), plan);
  expect_steps_inside_the_budget();
  optimizer_->state().clear();
  EXPECT_THROW(session_->use(plan), InputError);
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
