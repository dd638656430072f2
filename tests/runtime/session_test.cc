// What a step at work knows and counts: files of costs and plans, the optimizer's state, everything on the device.
#include "runtime/session/session.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "reprise/torch/errors.h"
#include "runtime/device/meter.h"
#include "runtime/files/cache.h"
#include "runtime/training.h"

namespace reprise::test {
namespace {

namespace fs = std::filesystem;

std::set<std::string> files_in(const fs::path& folder) {
  std::set<std::string> names;
  if (!fs::exists(folder)) return names;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) names.insert(entry.path().string() + " " + std::to_string(entry.file_size()));
  }
  return names;
}

TEST(Sessions, FindWhatWasMeasuredAndPlannedBeforeInFiles) {
  if (!test_device().is_cpu()) GTEST_SKIP() << "the first network lies beside the second, which makes another plan";
  const Case first = resnet_case();
  TrainingStep step = capture(first.module, first.loss, first.batch(1));
  const std::int64_t full = step.plan({}).peak_bytes;
  const std::int64_t least = step.try_plan({.budget_bytes = 1, .planning_seconds = 2}).smallest_budget_bytes;
  const std::int64_t budget = least + (full - least) / 2;
  const StepSummary planned = step.plan({.budget_bytes = budget, .planning_seconds = 2});
  const auto files = files_in(cache_folder());
  EXPECT_GE(files.size(), 2U);  // costs and plans
  const Case second = resnet_case();
  TrainingStep again = capture(second.module, second.loss, second.batch(1));
  const StepSummary known = again.plan({.budget_bytes = budget, .planning_seconds = 1e-9});
  EXPECT_EQ(known.time_ns, planned.time_ns);  // to the nanosecond: nothing was measured
  EXPECT_EQ(known.recompute_ns, planned.recompute_ns);
  EXPECT_EQ(known.lower_bound_ns, planned.lower_bound_ns);
  EXPECT_EQ(files_in(cache_folder()), files);
}

TEST(Sessions, AnswerWithTheSmallestBudgetWhereOneCannotBeKept) {
  const Case network = resnet_case();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  const StepSummary plain = step.plan({});
  const StepAnswer refused = step.try_plan({.budget_bytes = 1000, .planning_seconds = 2});
  EXPECT_EQ(refused.status, Status::kInfeasible);
  EXPECT_GT(refused.smallest_budget_bytes, 1000);
  EXPECT_LT(refused.smallest_budget_bytes, plain.peak_bytes);
  const StepAnswer kept = step.try_plan({.budget_bytes = refused.smallest_budget_bytes, .planning_seconds = 1e-9});
  EXPECT_NE(kept.status, Status::kInfeasible);
  EXPECT_LE(kept.summary.peak_bytes, refused.smallest_budget_bytes);
  step.plan({});
  try {
    step.plan({.budget_bytes = 1000, .planning_seconds = 2});
    FAIL() << "it was not refused";
  } catch (const InfeasibleBudget& error) {
    EXPECT_EQ(error.budget_bytes(), 1000);
    EXPECT_EQ(error.smallest_budget_bytes(), refused.smallest_budget_bytes);
    EXPECT_NE(std::string(error.what()).find("the smallest budget found is "), std::string::npos) << error.what();
  }
  step.run(network.batch(1));
  EXPECT_EQ(step.summary().recompute_ns, 0);  // the options are what they were
}

TEST(Sessions, CountTheStateOfAnOptimizerBeforeItIsThere) {
  const Case network = resnet_case();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  const auto optimizer = adam(network.module->parameters());
  std::int64_t expected = 0;
  for (const at::Tensor& parameter : network.module->parameters()) {
    expected += 2 * granted_bytes(parameter.device(), static_cast<std::int64_t>(parameter.nbytes()));
  }
  const auto smallest = [&](const torch::optim::Optimizer* with) {
    return step.try_plan({.budget_bytes = 1, .optimizer = with, .planning_seconds = 2}).smallest_budget_bytes;
  };
  const std::int64_t without = smallest(nullptr);
  EXPECT_EQ(smallest(optimizer.get()) - without, expected);
  step.plan({});
  step.run(network.batch(1));
  optimizer->step();  // the state is there now, and counted as such
  const std::int64_t budget = smallest(optimizer.get());
  EXPECT_EQ(smallest(nullptr), budget);
}

TEST(Sessions, CountWhateverElseIsOnTheDevice) {
  const Case network = resnet_case();
  const Batch batch = network.batch(1);
  TrainingStep step = capture(network.module, network.loss, batch);
  step.plan({});
  step.run(batch);
  network.module->zero_grad();
  const std::int64_t peak = step.plan({}).peak_bytes;
  const at::Tensor other = torch::ones({1 << 20}, torch::TensorOptions().device(test_device()));
  EXPECT_EQ(step.plan({}).peak_bytes - peak, 4 << 20);
  step.run(batch);
  EXPECT_EQ(step.summary().peak_bytes - peak, 4 << 20);
}

}  // namespace
}  // namespace reprise::test
