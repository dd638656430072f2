// The optimizer's state while it waits in the host's memory: who reads it meanwhile is told, and however the step ends,
// the numbers are there again. The link is the fake of fake_host_link.cc, so this runs anywhere.
#include "runtime/engine/parked_state.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "reprise/error.h"
#include "reprise/solve.h"
#include "runtime/device/host_link.h"
#include "runtime/device/meter.h"
#include "runtime/engine/executor.h"
#include "runtime/program/passes/park.h"
#include "runtime/program/program_queries.h"
#include "runtime/record/capture_step.h"
#include "runtime/training.h"

namespace reprise::test {
namespace {

constexpr std::int64_t kStateBytes = 3 * 4000;

// What somebody is told who reads a tensor; empty if the numbers are there.
std::string read_error(const at::Tensor& tensor) {
  try {
    (void)(tensor + 1);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

class ParkedStateTest : public testing::Test {
 protected:
  void SetUp() override {
    install_meter();
    for (int i = 0; i < 3; ++i) state_.push_back(at::rand({1000}));
    state_.back() = state_.back().detach();  // as the momentum of SGD is made
    for (const at::Tensor& tensor : state_) numbers_.push_back(tensor.clone());
    step_.program = with_state(*step_.program, state_);
    executor_ = std::make_unique<const Executor>(step_.program, plan());
  }
  void TearDown() override { fail_allocation(0); }

  // All state is stored first, let go before the caller's op or after it, and fetched before the last op.
  [[nodiscard]] Plan plan(bool frees_in_backward = false) const {
    const Plan plain = solve(make_graph(*step_.program), bare_costs(*step_.program), {.planner = "none"}).plan;
    const OpId last = op_id(step_.program->ops.size() - 1);
    Plan made;
    const auto add = [&](Action (*action)(ValueId)) {
      for (const ValueId value : state_values(*step_.program)) made.actions.push_back(action(value));
    };
    add(Action::store);
    for (const Action action : plain.actions) {
      const bool is_caller = action.computes() && action.op() == step_.program->caller_op();
      if (is_caller && !frees_in_backward) add(Action::free);
      if (action.computes() && action.op() == last) add(Action::fetch);
      made.actions.push_back(action);
      if (is_caller && frees_in_backward) add(Action::free);
    }
    return made;
  }
  void begin(StepState& running) {
    const auto block = std::make_shared<HostBlock>(at::kCPU, executor_->host_bytes());
    running.copies = std::make_shared<StepCopies>(make_host_link(block, nullptr));
    running.parked = parked_ = std::make_shared<ParkedState>(*step_.program, state_, running.copies);
  }
  void forward(StepState& running) {
    begin(running);
    (void)executor_->forward(arguments_of(step_, tensors_.tensors, batch_), running);
  }
  void backward(StepState& running) { (void)executor_->backward(loss_seeds(*step_.program), running); }
  void expect_numbers() const {
    for (std::size_t i = 0; i < state_.size(); ++i) EXPECT_TRUE(same_bits(state_[i], numbers_[i])) << i;
  }

  Case network_ = resnet_case();
  Batch batch_ = network_.batch(1);
  ModuleState tensors_ = state_of(*network_.module);
  StepProgram step_ = capture_step("resnet", tensors_, network_.loss, batch_);
  std::vector<at::Tensor> state_;
  std::vector<at::Tensor> numbers_;
  std::unique_ptr<const Executor> executor_;
  std::shared_ptr<ParkedState> parked_;
};

TEST_F(ParkedStateTest, IsAwayBetweenForwardAndBackward) {
  StepState running;
  const std::int64_t before = read_meter(at::kCPU).allocated_bytes;
  forward(running);
  for (const at::Tensor& tensor : state_) {
    EXPECT_NE(read_error(tensor).find("is in the host's memory"), std::string::npos) << read_error(tensor);
    EXPECT_EQ(tensor.storage().nbytes(), 4000U);
  }
  const std::int64_t there = read_meter(at::kCPU).allocated_bytes;
  EXPECT_EQ(parked_->away_bytes(), kStateBytes);
  parked_->bring_back();
  EXPECT_EQ(read_meter(at::kCPU).allocated_bytes - there, kStateBytes);
  EXPECT_EQ(parked_->away_bytes(), 0);
  EXPECT_EQ(parked_->returned_bytes(), kStateBytes);
  backward(running);
  EXPECT_EQ(read_meter(at::kCPU).allocated_bytes, before);
  expect_numbers();
}

TEST_F(ParkedStateTest, ComesBackByTheEndOfBackward) {
  StepState running;
  forward(running);
  backward(running);
  EXPECT_EQ(parked_->away_bytes(), 0);
  EXPECT_EQ(parked_->returned_bytes(), 0);
  expect_numbers();
}

TEST_F(ParkedStateTest, IsNotLetGoIfItWasChangedAfterItWasStored) {
  executor_ = std::make_unique<const Executor>(step_.program, plan(/*frees_in_backward=*/true));
  StepState running;
  forward(running);
  EXPECT_EQ(parked_->away_bytes(), 0);
  for (at::Tensor& numbers : numbers_) numbers.add_(1);
  for (at::Tensor& tensor : state_) tensor.add_(1);
  EXPECT_THROW(backward(running), InputError);
  expect_numbers();
}

TEST_F(ParkedStateTest, StaysAsItWasChangedAfterItCameBackEarly) {
  StepState running;
  forward(running);
  parked_->bring_back();
  parked_->bring_back();
  expect_numbers();
  for (std::size_t i = 0; i < state_.size(); ++i) {
    state_[i].add_(1);
    numbers_[i].add_(1);
  }
  backward(running);
  expect_numbers();
}

TEST_F(ParkedStateTest, ComesBackIfTheStepIsDropped) {
  const std::int64_t before = read_meter(at::kCPU).allocated_bytes;
  {
    StepState running;
    forward(running);
  }
  EXPECT_EQ(read_meter(at::kCPU).allocated_bytes, before);
  expect_numbers();
}

TEST_F(ParkedStateTest, ComesBackIfAStepFails) {
  int failures = 0;
  for (std::int64_t nth = 1; nth <= 60; ++nth) {
    StepState running;
    fail_allocation(nth);
    try {
      forward(running);
      backward(running);
    } catch (const c10::Error&) {
      ++failures;
    }
    fail_allocation(0);
    expect_numbers();
  }
  EXPECT_GT(failures, 30);
}

TEST_F(ParkedStateTest, IsTriedAgainIfThereIsNoRoomForIt) {
  {
    StepState running;
    forward(running);
    fail_allocation(2);  // the second tensor's
  }
  fail_allocation(0);
  EXPECT_NE(read_error(state_[1]), "");
  EXPECT_GT(parked_->away_bytes(), 0);
  parked_->bring_back();
  expect_numbers();
}

}  // namespace
}  // namespace reprise::test
