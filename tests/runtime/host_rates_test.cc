// What sessions learn from the copies of their steps, with the fake of fake_host_link.cc.
#include <gtest/gtest.h>

#include "runtime/device/host_link.h"
#include "runtime/fake_host_link.h"
#include "runtime/program/program_queries.h"
#include "runtime/record/capture_step.h"
#include "runtime/session/session.h"
#include "runtime/training.h"
#include "support/small_tests.h"

namespace reprise::test {
namespace {

constexpr std::int64_t kPlannedRate = kMeasuredRate / 10 * 8;
constexpr std::int64_t kLong = 1'000'000'000;  // ns that no step should wait

class HostRates : public testing::Test {
 protected:
  void SetUp() override {
    if (kSmallTests) GTEST_SKIP() << "searches of plans take minutes under a sanitizer";
    options_->cuda_graphs = CudaGraphs::kOff;
    options_->planning_seconds = options_->waiting_seconds = 600;
    options_->measure = false;  // so that plans are the same on every machine
    session_ = std::make_unique<Session>(CapturedStep{.program = step_.program}, options_,
                                         Surroundings{.known_tensors = [this] { return state_.tensors; }});
    options_->budget_bytes = 1;
    const std::int64_t least = plan_ahead().smallest_budget_bytes;
    options_->budget_bytes.reset();
    const std::int64_t full = plan_ahead().simulation.peak_bytes + session_->outside_bytes(0);
    options_->budget_bytes = least + (full - least) / 2;
    options_->host_budget_bytes = std::int64_t{1} << 30;
  }
  ~HostRates() override {
    fake_rates().reset();
    repeat_copies(1);
  }

  FoundPlan plan_ahead() { return session_->plan_ahead(session_->outside_bytes(0)); }

  // Enough steps for the copies of a plan to be timed, and one more, which may have another plan.
  void take_steps() {
    const at::NoGradGuard no_grad;
    for (int i = 0; i < 5; ++i) {
      RunningStep running;
      (void)session_->forward(arguments_of(step_, state_.tensors, batch_), running);
      (void)session_->backward(loss_seeds(*step_.program), running);
      EXPECT_GT(session_->current()->executor->host_bytes(), 0);
      EXPECT_EQ(session_->measured_peak_bytes(), session_->current()->peak_bytes());
      EXPECT_LE(session_->measured_peak_bytes(), options_->budget_bytes);
    }
  }
  void see(std::int64_t rate, std::int64_t wait_ns) {
    fake_rates() = {.down_bytes_per_s = rate, .up_bytes_per_s = rate, .wait_ns = wait_ns};
    take_steps();
  }
  void expect_planned_for(std::int64_t rate) {
    const Link link = session_->costs().link.value();
    EXPECT_NEAR(static_cast<double>(link.down_bytes_per_s), static_cast<double>(rate), .01 * static_cast<double>(rate));
    EXPECT_NEAR(static_cast<double>(link.up_bytes_per_s), static_cast<double>(rate), .01 * static_cast<double>(rate));
  }

  Case network_ = attention_case();  // none of its calls has a workspace
  Batch batch_ = network_.batch(1);
  ModuleState state_ = state_of(*network_.module);
  StepProgram step_ = capture_step("network", state_, network_.loss, batch_);
  std::shared_ptr<SessionOptions> options_ = std::make_shared<SessionOptions>();
  std::unique_ptr<Session> session_;
};

TEST_F(HostRates, OfASlowerLinkArePlannedForOnce) {
  see(kPlannedRate / 2, kLong);
  expect_planned_for(kPlannedRate / 2);
  const auto plan = session_->current();
  see(kPlannedRate / 4, kLong);
  expect_planned_for(kPlannedRate / 2);
  EXPECT_EQ(session_->current(), plan);
}

TEST_F(HostRates, OfALinkAtAQuarterArePlannedFor) {
  repeat_copies(4);
  see(kMeasuredRate, kLong);
  expect_planned_for(kMeasuredRate / 4);
}

TEST_F(HostRates, AreNotBelievedWhereStepsWaitForAnotherReason) {
  see(kMeasuredRate, kLong);
  expect_planned_for(kPlannedRate);
}

TEST_F(HostRates, OfAFasterLinkArePlannedForOnceWithLittleToSpare) {
  see(2 * kMeasuredRate, 0);
  expect_planned_for(2 * kMeasuredRate / 100 * 95);
  see(4 * kMeasuredRate, 0);
  expect_planned_for(2 * kMeasuredRate / 100 * 95);
}

TEST_F(HostRates, ThatWereTooGoodAreTakenBack) {
  see(2 * kMeasuredRate, 0);
  see(2 * kMeasuredRate, kLong);
  expect_planned_for(kPlannedRate);
  see(2 * kMeasuredRate, 0);
  expect_planned_for(kPlannedRate);
}

TEST_F(HostRates, ALittleBetterThanPlannedAreNotWorthAPlan) {
  see(kPlannedRate / 100 * 112, 0);
  expect_planned_for(kPlannedRate);
}

}  // namespace
}  // namespace reprise::test
