// Gradients that are taken while backward runs: each once, final, as soon as possible, and the rest is returned.
#include "runtime/engine/early_gradients.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "reprise/solve.h"
#include "runtime/device/meter.h"
#include "runtime/engine/executor.h"
#include "runtime/networks.h"
#include "runtime/program/program_queries.h"
#include "runtime/record/capture_step.h"
#include "runtime/training.h"

namespace reprise::test {
namespace {

using Gradients = std::vector<std::optional<at::Tensor>>;

class EarlyGradientsTest : public testing::Test {
 protected:
  // Backward of one step, in which `taker` may take gradients.
  Gradients backward(const Plan& plan, const GradientTaker* taker) {
    const Executor executor(step_.program, plan);
    StepState running;
    torch::manual_seed(3);
    (void)executor.forward(arguments_of(step_, state_.tensors, batch_), running);
    before_bytes_ = read_meter(test_device()).allocated_bytes;
    return executor.backward(loss_seeds(*step_.program), running, {}, taker);
  }
  [[nodiscard]] std::vector<Plan> plans() const {
    const Graph graph = make_graph(*step_.program);
    const Costs costs = bare_costs(*step_.program);
    const std::int64_t least = solve(graph, costs, {.budget_bytes = 1}).smallest_budget_bytes;
    return {solve(graph, costs, {.planner = "none"}).plan, solve(graph, costs, {.budget_bytes = least}).plan};
  }

  Case network_ = resnet_case();
  Batch batch_ = network_.batch(1);
  ModuleState state_ = state_of(*network_.module);
  StepProgram step_ = capture_step("resnet", state_, network_.loss, batch_);
  std::int64_t before_bytes_ = 0;
};

TEST_F(EarlyGradientsTest, AreTakenOnceAndTheOthersAreReturned) {
  for (const Plan& plan : plans()) {
    const Gradients expected = backward(plan, nullptr);
    Gradients taken(expected.size());
    GradientTaker taker{.wants = std::vector<std::uint8_t>(expected.size(), 0)};
    for (std::size_t i = 0; i < expected.size(); ++i) taker.wants[i] = i % 3 == 0 ? 0 : 1;
    taker.take = [&](std::size_t i, const at::Tensor& gradient) {
      EXPECT_FALSE(taken[i]) << i;
      taken[i] = gradient.clone();  // A write into it that comes later would show.
    };
    const Gradients left = backward(plan, &taker);
    ASSERT_EQ(left.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_FALSE(left[i] && taken[i]) << i;
      if (!expected[i]) continue;
      ASSERT_TRUE(left[i] || taken[i]) << i;
      EXPECT_EQ(taken[i].has_value(), taker.wants[i] != 0) << i;
      EXPECT_TRUE(same_bits(*expected[i], taken[i] ? *taken[i] : *left[i])) << i;
    }
  }
}

TEST_F(EarlyGradientsTest, ComeWhileBackwardRunsAndFreeTheirMemory) {
  install_meter();
  const Plan plan = plans().front();
  const std::int64_t all_bytes = [&] {
    std::int64_t bytes = 0;
    for (const auto& gradient : backward(plan, nullptr)) {
      if (gradient) bytes += static_cast<std::int64_t>(gradient->storage().nbytes());
    }
    return bytes;
  }();
  std::vector<std::int64_t> held;
  GradientTaker taker{.wants = std::vector<std::uint8_t>(step_.program->gradients.size(), 1)};
  taker.take = [&](std::size_t, const at::Tensor&) {
    held.push_back(read_meter(test_device()).allocated_bytes - before_bytes_);
  };
  (void)backward(plan, &taker);
  ASSERT_GT(held.size(), 4U);
  // The activations of the first layers are still there when the gradients of the last ones come.
  EXPECT_LT(held.back(), held.front());
  EXPECT_LT(read_meter(test_device()).allocated_bytes, before_bytes_ + all_bytes);
}

}  // namespace
}  // namespace reprise::test
