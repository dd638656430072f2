// Tests planned addresses: blocks that hand out nothing twice, scripts of calls, and steps that run in an arena, with
// every range filled with NaN when it is freed.
#include "runtime/device/arena.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "reprise/torch/errors.h"
#include "runtime/device/meter.h"
#include "runtime/engine/call_script.h"
#include "runtime/training.h"

namespace reprise::test {
namespace {

// -- Blocks.

// A guide that answers with the offsets it was given, in order.
class Offsets final : public RequestGuide {
 public:
  Offsets(std::shared_ptr<ArenaBlock> block, std::vector<std::int64_t> offsets)
      : block_(std::move(block)), offsets_(std::move(offsets)) {}
  void* take(std::int64_t bytes) override {
    return next_ < offsets_.size() ? block_->take(offsets_[next_++], bytes) : nullptr;
  }
  void was_served(void* /*data*/, std::int64_t /*bytes*/) override { ++served_elsewhere; }
  void will_be_freed(void* /*data*/) override {}

  int served_elsewhere = 0;

 private:
  std::shared_ptr<ArenaBlock> block_;
  std::vector<std::int64_t> offsets_;
  std::size_t next_ = 0;
};

at::Tensor floats(std::int64_t count) { return at::empty({count}, at::kFloat); }

TEST(Arenas, HandOutNothingThatIsInUse) {
  install_meter();
  Arena arena(at::kCPU);
  const auto block = arena.seat(1024, std::nullopt)->block;
  EXPECT_NE(block->take(256, 256), nullptr);
  EXPECT_EQ(block->take(256, 256), nullptr);   // the same
  EXPECT_EQ(block->take(0, 257), nullptr);     // its first byte
  EXPECT_EQ(block->take(511, 1), nullptr);     // its last byte
  EXPECT_EQ(block->take(300, 10), nullptr);    // inside of it
  EXPECT_EQ(block->take(0, 1024), nullptr);    // around it
  EXPECT_EQ(block->take(1024, 1), nullptr);    // outside of the block
  EXPECT_EQ(block->take(1000, 100), nullptr);  // half outside
  EXPECT_NE(block->take(0, 256), nullptr);     // beside it
  EXPECT_NE(block->take(512, 512), nullptr);
  EXPECT_EQ(block->live_bytes(), 1024);
  EXPECT_EQ(block->free_offset(0, 1024, 64, 64), std::nullopt);
  EXPECT_TRUE(give_back_to_arena(const_cast<void*>(block->base())));
  EXPECT_EQ(block->free_offset(0, 1024, 64, 64), 0);
  EXPECT_EQ(block->highest_free_offset(100, 64), 128);
  EXPECT_EQ(block->highest_free_offset(257, 64), std::nullopt);
}

TEST(Arenas, ServeOnlyTheThreadThatIsGuided) {
  install_meter();
  Arena arena(at::kCPU);
  const auto block = arena.seat(4096, std::nullopt)->block;
  Offsets guide(block, {0, 0, 1024});
  const GuideScope scope(at::kCPU, &guide);
  const at::Tensor first = floats(256);
  EXPECT_EQ(first.data_ptr(), block->base());
  const at::Tensor forwarded = floats(256);  // its memory is in use
  EXPECT_FALSE(block->contains(forwarded.data_ptr()));
  EXPECT_EQ(guide.served_elsewhere, 1);
  at::Tensor other;
  std::thread([&] { other = floats(16); }).join();
  EXPECT_FALSE(block->contains(other.data_ptr()));
  at::Tensor third = floats(16);
  EXPECT_TRUE(block->is_live(third.data_ptr()));
  std::thread([&] { third.reset(); }).join();  // whoever frees it
  EXPECT_EQ(block->live_bytes(), 1024);
}

TEST(Arenas, CountAsAWholeUntilTheyAreRetired) {
  const std::int64_t before = read_meter(at::kCPU).allocated_bytes;
  const MeteredSince since;
  at::Tensor kept;
  {
    Arena arena(at::kCPU);
    const auto block = arena.seat(1 << 20, std::nullopt)->block;
    EXPECT_EQ(read_meter(at::kCPU).allocated_bytes - before, 1 << 20);
    Offsets guide(block, {4096});
    {
      const GuideScope scope(at::kCPU, &guide);
      kept = floats(1000);
    }
    EXPECT_EQ(since.bytes(), 1 << 20);
    MeteredSince later;
    EXPECT_EQ(later.bytes(), 0);
    EXPECT_TRUE(later.add(kept.data_ptr()));
    EXPECT_EQ(later.bytes(), 1 << 20);
    kept.fill_(7);
    arena.give_back();
    EXPECT_EQ(later.bytes(), 4000);
  }
  EXPECT_EQ(since.bytes(), 4000);  // the arena is gone, and what somebody holds is still there
  EXPECT_EQ(kept.sum().item<float>(), 7000);
  kept.reset();
  EXPECT_EQ(since.bytes(), 0);
  EXPECT_EQ(read_meter(at::kCPU).allocated_bytes, before);
}

TEST(Arenas, StayInsideTheirLimit) {
  install_meter();
  Arena arena(at::kCPU);
  EXPECT_FALSE(arena.seat(1000, 999));
  EXPECT_EQ(arena.excess(1000, 900), 100);
  const auto first = arena.seat(1024, 1024);
  ASSERT_TRUE(first);
  void* held = first->block->take(first->offset + 768, 256);
  EXPECT_FALSE(arena.seat(1024, 1024 + 255));  // beside what is held in the old block
  const auto around = arena.seat(768, 1024);
  EXPECT_EQ(around->block, first->block);  // below it
  EXPECT_EQ(around->offset, 0);
  const auto second = arena.seat(1024, 1024 + 256);
  ASSERT_TRUE(second);
  EXPECT_NE(second->block, first->block);
  EXPECT_EQ(first->block->take(0, 64), nullptr);  // it is retired
  EXPECT_TRUE(give_back_to_arena(held));
  EXPECT_FALSE(give_back_to_arena(held));  // its block is gone
}

TEST(Arenas, GrowWhereGradientsAreAddedUpAgainAndAgain) {
  install_meter();
  Arena arena(at::kCPU);
  void* gradient = nullptr;
  const void* last = nullptr;
  int blocks = 0;
  for (int round = 0; round < 4; ++round) {
    for (int batch = 0; batch < 2; ++batch) {
      const auto seat = arena.seat(1024, std::nullopt);
      if (seat->block->base() != last) ++blocks;
      last = seat->block->base();
      if (batch == 0) gradient = seat->block->take(seat->offset + 960, 64);
    }
    give_back_to_arena(gradient);
  }
  EXPECT_EQ(blocks, 3);  // the third has room for both
}

// -- Scripts.

const auto kAll = [](ValueId /*value*/) { return true; };

TEST(Scripts, PutTemporariesWhereAnOutputWillLie) {
  const std::vector<SeenRequest> seen = {
      {.bytes = 800, .begin = 0, .end = 1},
      {.bytes = 100, .begin = 2, .end = 5},
      {.bytes = 60, .begin = 3, .end = 6},
      {.bytes = 800, .begin = 4, .output = value_id(7)},
  };
  const CallScript script = make_script(seen, 64, kAll);
  EXPECT_EQ(script.requests[0], (ScriptedRequest{.bytes = 800, .output = value_id(7)}));
  EXPECT_EQ(script.requests[1], (ScriptedRequest{.bytes = 100}));  // the output comes before it is freed
  EXPECT_EQ(script.requests[2], (ScriptedRequest{.bytes = 60, .offset = 128}));
  EXPECT_EQ(script.requests[3], (ScriptedRequest{.bytes = 800, .output = value_id(7)}));
  EXPECT_EQ(script.workspace_bytes, 192);
  const CallScript held = make_script(seen, 64, [](ValueId) { return false; });
  EXPECT_EQ(held.workspace_bytes, 832);
}

TEST(Scripts, GiveNoMemoryToWhatALibraryKeeps) {
  const CallScript script = make_script(std::vector<SeenRequest>{{.bytes = 64, .begin = 0}}, 64, kAll);
  EXPECT_TRUE(script.requests[0].is_kept);
  EXPECT_EQ(script.workspace_bytes, 0);
}

TEST(Scripts, ChangeTheirVersionWithTheWorkspaceThatTheyNeed) {
  CallScripts scripts;
  const CallScripts::Kind first{.op = op_id(3), .first = true};
  EXPECT_EQ(scripts.workspace_bytes(op_id(3)), std::nullopt);
  scripts.learn(first, {.requests = {{.bytes = 64}}, .workspace_bytes = 64});
  const std::size_t version = scripts.version();
  scripts.learn({.op = op_id(3)}, {.requests = {{.bytes = 32}}, .workspace_bytes = 64});
  EXPECT_EQ(scripts.version(), version);
  EXPECT_EQ(scripts.find({.op = op_id(3)})->requests[0].bytes, 32);
  EXPECT_EQ(scripts.find({.op = op_id(3), .in_place = true}), nullptr);
  for (int i = 1; i <= 4; ++i) {
    EXPECT_FALSE(scripts.is_settled(first));
    scripts.learn(first, {.workspace_bytes = 64 + i});
  }
  EXPECT_TRUE(scripts.is_settled(first));
  EXPECT_EQ(scripts.version(), version + 4);
}

// -- Steps.

struct Poisoned {
  Poisoned() { poison_arenas(true); }
  ~Poisoned() { poison_arenas(false); }
  Poisoned(const Poisoned&) = delete;
  Poisoned& operator=(const Poisoned&) = delete;
};

struct Budgets {
  std::int64_t plain;
  std::int64_t smallest;
};

Budgets budgets_of(TrainingStep& step) {
  const std::int64_t plain = step.plan({.arena = UseArena::kOff}).peak_bytes;
  const StepAnswer least = step.try_plan({.budget_bytes = 1, .planning_seconds = 1, .arena = UseArena::kOff});
  return {plain, least.smallest_budget_bytes};
}

struct Network {
  const char* name;
  Case (*make)();
};

class InArenas : public testing::TestWithParam<Network> {
 protected:
  void SetUp() override {
    if (!test_device().is_cpu()) GTEST_SKIP() << "there are arenas on the CPU alone";
  }
};

class ArenaSteps : public testing::Test {
 protected:
  void SetUp() override {
    if (!test_device().is_cpu()) GTEST_SKIP() << "there are arenas on the CPU alone";
  }
};

TEST_P(InArenas, TrainBitForBitAtManyBudgets) {
  const Poisoned poisoned;
  torch::manual_seed(1);
  const Case reference = GetParam().make();
  const Trained plain = train(reference, plainly(reference), sgd);
  for (const double share : {1.0, 0.6, 0.2, -1.0}) {
    torch::manual_seed(1);
    const Case network = GetParam().make();
    TrainingStep step = capture(network.module, network.loss, network.batch(1));
    const Budgets budgets = budgets_of(step);
    StepOptions options{.planning_seconds = 1, .arena = UseArena::kOn};
    if (share > 0) {
      const auto more = static_cast<std::int64_t>(share * static_cast<double>(budgets.plain - budgets.smallest));
      options.budget_bytes = budgets.smallest + more + budgets.plain / 5;
    }
    step.plan(options);
    const Trained planned = train(network, planned_run(step), sgd);
    expect_same(plain, planned);
    EXPECT_GT(step.summary().arena_bytes, 0) << share;
    EXPECT_EQ(step.summary().peak_bytes, step.measured_peak_bytes()) << share;
    EXPECT_LE(step.measured_peak_bytes(), options.budget_bytes.value_or(step.measured_peak_bytes())) << share;
  }
}

TEST_P(InArenas, AddUpGradients) {
  const Poisoned poisoned;
  torch::manual_seed(1);
  const Case reference = GetParam().make();
  const Trained plain = train(reference, plainly(reference), adam, /*micro_batches=*/3);
  torch::manual_seed(1);
  const Case network = GetParam().make();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  step.plan({.arena = UseArena::kOn});
  expect_same(plain, train(network, planned_run(step), adam, /*micro_batches=*/3));
  EXPECT_GT(step.summary().arena_bytes, 0);
  EXPECT_EQ(step.summary().peak_bytes, step.measured_peak_bytes());
}

INSTANTIATE_TEST_SUITE_P(All, InArenas,
                         testing::Values(Network{"resnet", resnet_case}, Network{"attention", attention_case},
                                         Network{"recurrent", recurrent_case}, Network{"in_place", in_place_case}),
                         [](const auto& made) { return made.param.name; });

TEST_F(ArenaSteps, LeaveGradientsWithWhoeverHoldsThem) {
  const Poisoned poisoned;
  const Case network = resnet_case();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  step.plan({.arena = UseArena::kOn});
  std::vector<at::Tensor> held;
  std::vector<at::Tensor> copies;
  for (int i = 0; i < 5; ++i) {
    network.module->zero_grad();
    step.run(network.batch(i));
    held.push_back(network.module->parameters()[static_cast<std::size_t>(i)].grad());
    copies.push_back(held.back().clone());
  }
  EXPECT_GT(step.summary().arena_bytes, 0);
  EXPECT_EQ(step.summary().peak_bytes, step.measured_peak_bytes());
  for (std::size_t i = 0; i < held.size(); ++i) EXPECT_TRUE(same_bits(held[i], copies[i])) << i;
}

TEST_F(ArenaSteps, GoOnAfterMemoryHasRunOut) {
  const Poisoned poisoned;
  torch::manual_seed(1);
  const Case reference = resnet_case();
  reference.module->eval();
  plainly(reference)(reference.batch(1));
  torch::manual_seed(1);
  const Case network = resnet_case();
  network.module->eval();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  step.plan({.arena = UseArena::kOn});
  step.run(network.batch(1));
  for (int nth = 1; nth < 60; nth += 7) {
    network.module->zero_grad();
    fail_allocation(nth);
    EXPECT_THROW(step.run(network.batch(1)), c10::OutOfMemoryError) << nth;
    fail_allocation(0);
    network.module->zero_grad();
    step.run(network.batch(1));
    EXPECT_GT(step.summary().arena_bytes, 0);
    for (std::size_t i = 0; i < network.module->parameters().size(); ++i) {
      EXPECT_TRUE(same_bits(network.module->parameters()[i].grad(), reference.module->parameters()[i].grad())) << i;
    }
  }
}

TEST_F(ArenaSteps, GiveWayToStepsOfAnotherModel) {
  const Case first = resnet_case();
  const Case second = resnet_case();
  TrainingStep one = capture(first.module, first.loss, first.batch(1));
  TrainingStep other = capture(second.module, second.loss, second.batch(1));
  other.plan({.arena = UseArena::kOff});
  other.run(second.batch(1));
  second.module->zero_grad();
  const std::int64_t budget = other.measured_peak_bytes();
  one.plan({.arena = UseArena::kOn});
  for (int i = 0; i < 2; ++i) one.run(first.batch(1));
  first.module->zero_grad();
  EXPECT_GT(one.summary().arena_bytes, 0);
  other.plan({.planning_seconds = 1, .arena = UseArena::kOff});
  other.run(second.batch(1));
  EXPECT_EQ(other.measured_peak_bytes(), budget + one.summary().arena_bytes);  // without a budget it may stay
  second.module->zero_grad();
  other.plan({.budget_bytes = 1 << 30, .planning_seconds = 1, .arena = UseArena::kOff});
  other.run(second.batch(1));
  EXPECT_EQ(other.measured_peak_bytes(), budget);
}

TEST_F(ArenaSteps, RefuseABudgetNoLaterThanStepsWithout) {
  const Case network = resnet_case();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  const Budgets budgets = budgets_of(step);
  step.plan({.budget_bytes = budgets.smallest, .planning_seconds = 1, .arena = UseArena::kOn});
  for (int i = 0; i < 3; ++i) {
    network.module->zero_grad();
    step.run(network.batch(1));
    EXPECT_LE(step.measured_peak_bytes(), budgets.smallest);
  }
}

}  // namespace
}  // namespace reprise::test
