// Tests what a session knows and counts: files of costs and plans, the optimizer's state, and everything on the device.
#include "runtime/session/session.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "reprise/torch/errors.h"
#include "runtime/device/meter.h"
#include "runtime/files/cache.h"
#include "runtime/impatient_step.h"
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
  EXPECT_GE(files.size(), 2U);  // one with costs and one with plans
  const Case second = resnet_case();
  TrainingStep again = capture(second.module, second.loss, second.batch(1));
  const StepSummary known = again.plan({.budget_bytes = budget, .planning_seconds = 1e-9});
  EXPECT_EQ(known.time_ns, planned.time_ns);  // They are equal to the nanosecond, so nothing was measured again.
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
  EXPECT_EQ(step.summary().recompute_ns, 0);  // A refused budget does not change the options.
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
  optimizer->step();  // Now the state exists, and is counted as memory on the device.
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

TEST(Sessions, ExpectABatchOnceWhetherItIsThereOrNot) {
  if (!test_device().is_cpu()) GTEST_SKIP() << "CUDA counts what is there";
  const Case network = resnet_case();
  Batch batch = network.batch(1);
  TrainingStep step = capture(network.module, network.loss, batch);
  const std::int64_t there = step.plan({}).peak_bytes;
  batch.clear();
  EXPECT_EQ(step.plan({}).peak_bytes, there);
  batch = network.batch(2);
  step.run(batch);
  EXPECT_EQ(step.summary().peak_bytes, there);
}

TEST(Sessions, RunWithAPlanThatIsKnownAndSearchBesideTheSteps) {
  ImpatientStep step(resnet_case());
  const std::int64_t budget = step.half();
  step.options->budget_bytes = budget;
  step.run();
  const auto first = step.session->current();
  EXPECT_TRUE(first->found.is_provisional);
  EXPECT_LE(first->peak_bytes(), budget);
  while (step.session->current() == first) step.run();  // This goes on until a step finds that the search is done.
  const auto later = step.session->current();
  EXPECT_FALSE(later->found.is_provisional);
  EXPECT_LT(later->found.simulation.time_ns, first->found.simulation.time_ns);
  EXPECT_LE(later->peak_bytes(), budget);
  EXPECT_LE(*step.session->measured_peak_bytes(), budget);
  if (test_device().is_cuda()) return;  // where the memory of the first session counts in the second
  // The plan is in the file, so the next session has it at once.
  ImpatientStep again(resnet_case());
  EXPECT_EQ(again.half(), budget);
  again.options->budget_bytes = budget;
  again.run();
  EXPECT_FALSE(again.session->current()->found.is_provisional);
  EXPECT_EQ(again.session->current()->found.simulation.time_ns, later->found.simulation.time_ns);
}

TEST(Sessions, WaitForTheSearchWhereAPlanIsAskedFor) {
  ImpatientStep step(resnet_case());
  step.options->budget_bytes = step.half();
  step.run();
  const auto first = step.session->current();
  ASSERT_TRUE(first->found.is_provisional);
  const auto settled = step.session->settled();
  EXPECT_FALSE(settled->found.is_provisional);
  EXPECT_LT(settled->found.simulation.time_ns, first->found.simulation.time_ns);
  EXPECT_EQ(step.session->settled(), settled);
  step.run();
  EXPECT_EQ(step.session->current(), settled);
  step.session->drop_plans();
  step.run();
  EXPECT_FALSE(step.session->current()->found.is_provisional);
}

TEST(Sessions, PlanAheadInFull) {
  ImpatientStep step(resnet_case());
  step.options->budget_bytes = step.half();
  step.run();
  ASSERT_TRUE(step.session->current()->found.is_provisional);
  const std::int64_t before = step.session->current()->found.simulation.time_ns;
  EXPECT_FALSE(step.session->plan_ahead(step.session->outside_bytes(0)).is_provisional);
  EXPECT_LT(step.session->current()->found.simulation.time_ns, before);
}

TEST(Sessions, SearchInFullBeforeTheyRefuse) {
  ImpatientStep step(resnet_case());
  const std::int64_t budget = step.half();
  std::filesystem::remove_all(cache_folder() / "plans");  // Now no plan is known.
  step.options->budget_bytes = budget;
  step.run();
  EXPECT_FALSE(step.session->current()->found.is_provisional);
  step.options->budget_bytes = 1;
  EXPECT_THROW(step.run(), InfeasibleBudget);
}

TEST(Sessions, EndASearchThatNobodyNeeds) {
  for (int i = 0; i < 3; ++i) {
    ImpatientStep step(resnet_case());
    step.options->planning_seconds = 1000;
    step.options->budget_bytes = step.half();
    step.run();
    if (i == 1) step.session->drop_plans();
    if (i == 2) step.session->release();
  }
}

// Memory of several kinds, as a ledger sees it.
struct Memory {
  static constexpr std::int64_t kBytes = 4096;

  std::vector<char> others = std::vector<char>(kBytes);
  at::Tensor not_ours = at::from_blob(others.data(), {kBytes}, at::kByte);  // memory that the meter does not know
  at::Tensor old = at::empty({kBytes}, at::kByte);                          // allocated before the model was compiled
  at::Tensor old_and_unknown = at::empty({kBytes}, at::kByte);
  MeteredSince metered{};
  at::Tensor input = at::empty({kBytes}, at::kByte);
  at::Tensor prefetched = at::empty({kBytes}, at::kByte);  // not found by a walk over the model

  [[nodiscard]] Ledger ledger() {
    return {at::kCPU, [this] { return std::vector<at::Tensor>{not_ours, old, input}; }, metered};
  }
  [[nodiscard]] std::int64_t walked() const {
    return storage_bytes(std::vector<at::Tensor>{not_ours, old, input}, at::kCPU);
  }
};

TEST(Ledgers, FollowWhatWasAllocatedAfterTheModelWasCompiled) {
  Memory memory;
  Ledger ledger = memory.ledger();
  const std::vector<at::Tensor> read{memory.input};
  EXPECT_EQ(ledger.expected_bytes(read, 0), 4 * Memory::kBytes);
  EXPECT_EQ(ledger.expected_bytes(read, 100), 4 * Memory::kBytes + 100);  // 100 bytes do not exist yet.
  EXPECT_EQ(ledger.total_bytes(read), 4 * Memory::kBytes);
  memory.prefetched.reset();
  EXPECT_EQ(ledger.total_bytes(read), 3 * Memory::kBytes);
  EXPECT_EQ(ledger.expected_bytes(read, 0), 3 * Memory::kBytes);
  EXPECT_EQ(ledger.total_bytes(read), memory.walked());
}

TEST(Ledgers, FollowOldMemoryOfTheModelAlone) {
  Memory memory;
  Ledger ledger = memory.ledger();
  EXPECT_EQ(ledger.total_bytes({}), 4 * Memory::kBytes);
  memory.old_and_unknown.reset();
  EXPECT_EQ(ledger.total_bytes({}), 4 * Memory::kBytes);
  memory.old.reset();
  EXPECT_EQ(ledger.total_bytes({}), 3 * Memory::kBytes);
  EXPECT_EQ(Memory().ledger().total_bytes({}), 4 * Memory::kBytes);  // Another ledger counts on its own.
  EXPECT_EQ(ledger.total_bytes({}), 3 * Memory::kBytes);
}

}  // namespace
}  // namespace reprise::test
