// Steps of the online mode that follow the plan of an earlier one, and steps that depart from it.
#include <reprise/torch/errors.h>
#include <reprise/torch/online.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "reprise/io.h"
#include "reprise/simulate.h"
#include "reprise/validate.h"
#include "runtime/device/meter.h"
#include "runtime/messages.h"
#include "runtime/networks.h"
#include "runtime/online/script.h"
#include "runtime/training.h"

namespace reprise::test {
namespace {

std::int64_t allocated() { return read_meter(test_device()).allocated_bytes; }
bool is_possible() { return online_is_available(test_device().type()); }

OnlineOptions within(std::int64_t bytes, double planning_seconds = 0.1) {
  return {.budget_bytes = bytes,
          .device = test_device(),
          .smallest_bytes = 1024,
          .most_recomputation = 0,
          .planning_seconds = planning_seconds};
}

constexpr const char* kTooSmall =
    "beside the workspaces of the device's libraries, this step is too small to be planned";

// Layers of which one may be another than usual, with dropout, a write in place and weights that are updated. On other
// devices they are larger, because libraries keep workspaces there, beside which a small step would not count.
class Layers {
 public:
  static constexpr int kLayers = 10;
  static constexpr std::int64_t kWidth = 64;
  static std::int64_t rows() { return test_device().is_cpu() ? 128 : 128 << 10; }

  Layers() {
    torch::manual_seed(11);
    for (int i = 0; i < kLayers; ++i) {
      weights_.push_back((torch::randn({kWidth, kWidth}, test_device()) * 0.2).requires_grad_());
    }
    x_ = torch::randn({rows(), kWidth}, test_device());
  }
  // Returns the loss. `other`: the layer that does something else; -1: none.
  at::Tensor step(int other = -1) {
    at::Tensor y = x_;
    for (int i = 0; i < kLayers; ++i) {
      y = torch::dropout(y.matmul(weights_[static_cast<std::size_t>(i)]), 0.2, true);
      y = i == other ? torch::gelu(y) : torch::tanh(y.add_(0.1));
    }
    const at::Tensor loss = y.pow(2).mean();
    loss.backward();
    const at::NoGradGuard no_grad;
    for (at::Tensor& weight : weights_) {
      weight.sub_(weight.grad(), 0.1);
      weight.mutable_grad().reset();
    }
    return loss.detach();
  }
  std::vector<at::Tensor> train(const std::vector<int>& others) {
    std::vector<at::Tensor> left;
    for (const int other : others) left.push_back(step(other));
    for (const at::Tensor& weight : weights_) left.push_back(weight.detach());
    return left;
  }

 private:
  std::vector<at::Tensor> weights_;
  at::Tensor x_;
};

class OnlineFollowing : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_possible()) GTEST_SKIP() << "this build cannot do it on " << test_device();
    install_meter();
    repeat_bits();
    split_blocks_exactly(test_device());
    Layers layers;
    (void)layers.step();  // Libraries take workspaces of their own.
    const std::int64_t before = allocated();
    reset_meter_peak(test_device());
    (void)layers.step();
    plain_bytes_ = read_meter(test_device()).peak_bytes - before;
  }
  // Room for this share of what a plain step takes beyond what is there before it.
  [[nodiscard]] std::int64_t share(double part) const {
    return allocated() + static_cast<std::int64_t>(part * static_cast<double>(plain_bytes_));
  }
  // Trains with and without a budget, and compares.
  OnlineSummary expect_eagers_bits(const std::vector<int>& others, double part, double planning_seconds = 0.1) {
    Layers plain;
    std::vector<at::Tensor> expected = plain.train(others);
    expected.push_back(torch::rand({3}, test_device()));
    Layers layers;
    const std::int64_t budget = share(part);
    std::vector<at::Tensor> left;
    OnlineSummary summary;
    {
      Online online(within(budget, planning_seconds));
      left = layers.train(others);
      summary = online.summary();
      EXPECT_LE(summary.peak_bytes, budget);
      EXPECT_GT(summary.evictions, 0);
    }
    left.push_back(torch::rand({3}, test_device()));
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(same_bits(expected[i], left[i])) << i;
    return summary;
  }

  std::int64_t plain_bytes_ = 0;
};

TEST_F(OnlineFollowing, DoesWhatWasPlanned) {
  for (const double part : {0.8, 0.6, 0.5}) {
    SCOPED_TRACE(part);
    const OnlineSummary summary = expect_eagers_bits(std::vector<int>(6, -1), part);
    EXPECT_EQ(summary.steps, 6);
    // The first step has nothing to update before it, so it is another one than the second.
    EXPECT_EQ(summary.followed_steps, 4);
    EXPECT_EQ(summary.departures, 1);
    EXPECT_EQ(summary.scripts, 2);
    EXPECT_EQ(summary.unplanned_evictions, 0);
  }
}

TEST_F(OnlineFollowing, MakesTheSameCallsAgainInEveryStep) {
  Layers layers;
  Online online(within(share(0.5)));
  std::vector<std::int64_t> repeated;
  for (int i = 0; i < 10; ++i) {
    const std::int64_t before = online.summary().repeated_calls;
    (void)layers.step();
    repeated.push_back(online.summary().repeated_calls - before);
  }
  EXPECT_GT(repeated[7], 0);
  // Once a script was followed, it is planned again with the times of two steps; on a slow machine that comes later.
  for (std::size_t i = 8; i < repeated.size(); ++i) EXPECT_EQ(repeated[i], repeated[7]);
}

TEST_F(OnlineFollowing, ShowsTheStepThatItFollows) {
  Layers layers;
  const std::int64_t budget = share(0.5);
  Online online(within(budget));
  EXPECT_FALSE(online.planned_step());
  for (int i = 0; i < 8; ++i) (void)layers.step();
  const std::int64_t before = online.summary().repeated_calls;
  (void)layers.step();
  const auto repeated = static_cast<std::size_t>(online.summary().repeated_calls - before);
  const auto shown = online.planned_step();
  ASSERT_TRUE(shown);
  const auto& [step, plan] = *shown;
  EXPECT_FALSE(validate(step.graph, plan));
  const Simulation simulation = simulate(step.graph, step.costs, plan);
  EXPECT_LE(simulation.peak_bytes, budget);
  std::vector<int> runs(step.graph.num_ops(), 0);
  std::size_t again = 0;
  for (const Action& action : plan.actions) {
    if (action.computes()) again += runs[index(action.op())]++ > 0 ? 1 : 0;
  }
  EXPECT_GT(again, 0);
  EXPECT_LE(repeated, again);  // What was freed and not taken yet need not be made again.
}

TEST_F(OnlineFollowing, PlansNothingIfItMayNot) {
  const OnlineSummary summary = expect_eagers_bits(std::vector<int>(4, -1), 0.6, /*planning_seconds=*/0);
  EXPECT_EQ(summary.scripts, 0);
  EXPECT_EQ(summary.followed_steps, 0);
}

TEST_F(OnlineFollowing, PlansNothingWithoutPressure) {
  Layers layers;
  Online online(within(share(3)));
  for (int i = 0; i < 3; ++i) (void)layers.step();
  EXPECT_EQ(online.summary().scripts, 0);
  EXPECT_EQ(online.summary().planning_seconds, 0);
}

TEST_F(OnlineFollowing, KeepsBitsAndBudgetWhereAStepDeparts) {
  for (const int other : {0, 4, Layers::kLayers - 1}) {
    SCOPED_TRACE(other);
    const OnlineSummary summary = expect_eagers_bits({-1, -1, -1, other, -1, -1}, 0.5);
    EXPECT_EQ(summary.departures, 2);
    EXPECT_EQ(summary.scripts, 3);
    EXPECT_EQ(summary.followed_steps, 3);
  }
}

TEST_F(OnlineFollowing, HasAScriptForEachOfTwoBranches) {
  const OnlineSummary summary = expect_eagers_bits({-1, -1, 5, -1, 5, -1, 5, -1, 5, 5}, 0.5);
  EXPECT_EQ(summary.scripts, 3);
  // No plan is made of the third step, because none of the two before it has been of use by then.
  EXPECT_EQ(summary.departures, 3);
  EXPECT_EQ(summary.followed_steps, 6);
}

TEST_F(OnlineFollowing, PlansLessOftenIfNoStepComesAgain) {
  Layers layers;
  Online online(within(share(0.5)));
  for (int i = 0; i < Layers::kLayers; ++i) (void)layers.step(i);
  EXPECT_EQ(online.summary().followed_steps, 0);
  EXPECT_LE(online.summary().scripts, 4);
}

TEST_F(OnlineFollowing, BeginsAgainWithAnotherBudget) {
  Layers layers;
  Online online(within(share(0.5)));
  for (int i = 0; i < 3; ++i) (void)layers.step();
  EXPECT_EQ(online.summary().followed_steps, 1);
  online.set_budget(share(0.8));
  reset_meter_peak(test_device());
  for (int i = 0; i < 3; ++i) (void)layers.step();  // The rest of a step, one that is logged, and one that follows it.
  EXPECT_EQ(online.summary().scripts, 1);
  EXPECT_EQ(online.summary().followed_steps, 2);
}

TEST_F(OnlineFollowing, LeavesNothingBehind) {
  Layers layers;
  const std::int64_t budget = share(0.5);
  Online online(within(budget));
  for (int i = 0; i < 3; ++i) (void)layers.step();
  const std::int64_t before = allocated();
  for (int i = 0; i < 40; ++i) {
    (void)layers.step(i % 20 == 19 ? 3 : -1);
    EXPECT_EQ(allocated(), before);
  }
  EXPECT_GT(online.summary().followed_steps, 35);
  EXPECT_LE(online.summary().peak_bytes, budget);
}

// Much less than the square root of a long chain is there at a time.
class OnlineThrashing : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_possible()) GTEST_SKIP() << "this build cannot do it on " << test_device();
    install_meter();
    repeat_bits();
    x_ = torch::randn({64, 64}, test_device()).requires_grad_();
    before_ = allocated();
  }
  void step() const {
    at::Tensor y = x_;
    for (int i = 0; i < 60; ++i) y = torch::tanh(y);
    y.sum().backward();
    x_.mutable_grad().reset();
  }
  [[nodiscard]] OnlineOptions room_for(int results, double most_recomputation) const {
    OnlineOptions options = within(before_ + results * 64 * 64 * 4, /*planning_seconds=*/0.02);
    options.most_recomputation = most_recomputation;
    return options;
  }
  // The budget that a message names, to the byte.
  [[nodiscard]] static std::int64_t named_in(const std::string& message) {
    const std::string begin = "By a simulation of the calls, ";
    const auto found = message.find(begin);
    if (found == std::string::npos) return 0;
    const auto end = message.find(" are enough", found);
    return parse_bytes(message.substr(found + begin.size(), end - found - begin.size()));
  }

  at::Tensor x_;
  std::int64_t before_ = 0;
};

TEST_F(OnlineThrashing, IsRefusedWithABudgetThatIsEnough) {
  if (!test_device().is_cpu()) GTEST_SKIP() << kTooSmall;
  std::string message;
  {
    const Online online(room_for(5, 0.1));
    message = input_error([&] { step(); });
    x_.mutable_grad().reset();
  }
  const std::int64_t named = named_in(message);
  ASSERT_GT(named, before_ + 5 * 64 * 64 * 4) << message;
  EXPECT_LT(named, before_ + 60 * 64 * 64 * 4) << message;
  OnlineOptions options = room_for(5, 8);
  options.budget_bytes = named;
  const Online online(options);
  for (int i = 0; i < 2; ++i) step();  // It would throw above eight times.
  EXPECT_EQ(online.summary().steps, 2);
}

TEST_F(OnlineThrashing, WarnsOnceWithABudgetThatIsEnough) {
  std::vector<std::string> lines;
  set_message_sinks({.log = [&](Severity severity, const std::string& line) {
    if (severity == Severity::kWarning) lines.push_back(line);
  }});
  {
    OnlineOptions options = room_for(5, 0);
    options.planning_seconds = 1e-9;  // Steps are logged, and there is no time to plan them.
    const Online online(options);
    for (int i = 0; i < 3; ++i) step();
  }
  set_message_sinks({});
  ASSERT_EQ(lines.size(), 1);
  EXPECT_GT(named_in(lines[0]), before_ + 5 * 64 * 64 * 4) << lines[0];
}

// A large result is cheap to compute from a small one that is dear, and that the program writes over.
TEST_F(OnlineFollowing, CopiesWhatIsWrittenOverAndReadLater) {
  if (!test_device().is_cpu()) GTEST_SKIP() << kTooSmall;
  torch::manual_seed(2);
  constexpr int kBlocks = 6;
  std::vector<at::Tensor> weights;
  for (int i = 0; i < kBlocks; ++i) weights.push_back((torch::randn({64, 64}, test_device()) * 0.05).requires_grad_());
  const auto step = [&] {
    at::Tensor total = torch::zeros({});
    for (const at::Tensor& weight : weights) {
      at::Tensor small = torch::matrix_exp(weight);
      const at::Tensor large = torch::tanh(small.repeat({16, 1}));
      small.mul_(0.5);
      total = total + large.mean() + small.mean();
    }
    total.backward();
    std::vector<at::Tensor> gradients;
    for (at::Tensor& weight : weights) gradients.push_back(std::exchange(weight.mutable_grad(), {}));
    return gradients;
  };
  const std::int64_t before = allocated();
  reset_meter_peak(test_device());
  const std::vector<at::Tensor> expected = step();
  const std::int64_t large_bytes = 16 * 64 * 64 * 4;
  Online online(within(read_meter(test_device()).peak_bytes + allocated() - before - 3 * large_bytes));
  for (int i = 0; i < 3; ++i) (void)step();
  const OnlineSummary learned = online.summary();
  const std::vector<at::Tensor> gradients = step();
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(same_bits(expected[i], gradients[i])) << i;
  EXPECT_EQ(online.summary().followed_steps, learned.followed_steps + 1);
  const std::int64_t repeated = online.summary().repeated_calls - learned.repeated_calls;
  EXPECT_GT(repeated, 0);
  EXPECT_EQ(repeated % 2, 0) << "only the two calls after the small result are made again";
  EXPECT_LE(repeated, 8);
}

struct FollowedCase {
  const char* name;
  Case (*make)();
  double share;
};
class FollowedNetworks : public testing::TestWithParam<FollowedCase> {};

// Batch norm, dropout, writes in place, and two batches for one update.
TEST_P(FollowedNetworks, TrainBitForBitInsideTheBudget) {
  if (!is_possible()) GTEST_SKIP() << "this build cannot do it on " << test_device();
  if (!test_device().is_cpu() && GetParam().share > 0.9) GTEST_SKIP() << kTooSmall;
  install_meter();
  repeat_bits();
  const auto run = [&] {
    const Case network = GetParam().make();
    return train(network, plainly(network), adam, /*micro_batches=*/2, /*steps=*/5);
  };
  const Trained plain = run();
  const std::int64_t before = allocated();
  reset_meter_peak(test_device());
  run();
  const auto above = static_cast<double>(read_meter(test_device()).peak_bytes - before);
  {
    const std::int64_t budget = before + static_cast<std::int64_t>(GetParam().share * above);
    Online online(within(budget));
    run();
    const OnlineSummary first = online.summary();
    EXPECT_GE(first.followed_steps, 5);
    // Meanwhile the optimizer has got its state, for which steps were planned again.
    const Trained trained = run();
    EXPECT_LE(read_meter(test_device()).peak_bytes, budget);
    EXPECT_GE(online.summary().followed_steps, first.followed_steps + 5);
    EXPECT_EQ(online.summary().unplanned_evictions, first.unplanned_evictions);
    online.end();
    expect_same(plain, trained);
  }
  EXPECT_EQ(allocated(), before);
}

INSTANTIATE_TEST_SUITE_P(All, FollowedNetworks,
                         testing::Values(FollowedCase{"resnet", resnet_case, 0.6},
                                         FollowedCase{"attention", attention_case, 0.9},
                                         FollowedCase{"in_place", in_place_case, 0.95}),
                         [](const auto& tested) { return std::string(tested.param.name); });

// A chain of calls, each with a result of 100 bytes, and backward calls that read the results from the last on.
online::StepLog chain_log(std::uint32_t length) {
  online::StepLog log;
  for (std::uint32_t i = 0; i < length; ++i) {
    log.calls.push_back({.signature = i, .name = "forward", .makes = {{i}}, .cost_ns = 10, .repeatable = true});
    if (i > 0) log.calls.back().reads.push_back(i - 1);
    log.calls.back().outside_bytes = 50;
    log.bytes.push_back(100);
  }
  for (std::uint32_t i = 0; i < length; ++i) {
    log.calls.push_back({.signature = length + i, .name = "backward", .makes = {{length + i}}, .cost_ns = 10});
    log.calls.back().reads.push_back(length - 1 - i);
    if (i > 0) log.calls.back().reads.push_back(length + i - 1);
    log.calls.back().outside_bytes = 50;
    log.calls.back().pass = 1;
    log.bytes.push_back(10);
  }
  log.held.push_back(2 * length - 1);
  return log;
}

// Obeys all orders with sets and loops only.
TEST(OnlineScript, HasEverythingThatCallsReadInsideTheBudget) {
  constexpr std::uint32_t kLength = 12;
  constexpr std::int64_t kBudget = 700;
  const online::Script script = online::plan_log(chain_log(kLength), kBudget, /*seconds=*/1);
  ASSERT_TRUE(script.has_plan());
  std::vector<bool> live(script.log.bytes.size(), false);
  int repeated = 0;
  const auto run = [&](std::size_t number) {
    const online::LoggedCall& call = script.log.calls[number];
    for (const std::uint32_t value : call.reads) EXPECT_TRUE(live[value]) << number << " lacks " << value;
    for (const auto& made : call.makes) live[made.value] = true;
    std::int64_t bytes = call.outside_bytes;
    for (std::size_t v = 0; v < live.size(); ++v) bytes += live[v] ? script.log.bytes[v] : 0;
    EXPECT_LE(bytes, kBudget) << number;
  };
  const auto obey = [&](const online::Order& order) {
    if (order.frees()) {
      live[order.id] = false;
    } else {
      run(order.id);
      ++repeated;
    }
  };
  for (std::size_t i = 0; i < script.log.calls.size(); ++i) {
    EXPECT_EQ(script.live_before(i), live) << i;
    std::ranges::for_each(script.orders[i].before, obey);
    run(i);
    std::ranges::for_each(script.orders[i].after, obey);
  }
  EXPECT_GT(repeated, 0);
  EXPECT_EQ(script.recompute_ns, repeated * 10);
  EXPECT_EQ(script.time_ns, 2 * kLength * 10);
}

TEST(OnlineScript, SaysWhenWhatItFreesIsMadeAgain) {
  const online::Script script = online::plan_log(chain_log(12), 700, /*seconds=*/1);
  ASSERT_TRUE(script.has_plan());
  const auto makes = [&](std::size_t call, std::uint32_t value) {
    return std::ranges::any_of(script.orders[call].before, [&](const online::Order& order) {
      return !order.frees() && script.log.calls[order.id].makes.front().value == value;
    });
  };
  int freed = 0;
  for (std::size_t i = 0; i < script.orders.size(); ++i) {
    for (const online::Order& order : script.orders[i].after) {
      std::size_t again = i + 1;
      while (again < script.orders.size() && !makes(again, order.id)) ++again;
      const bool is_made = again < script.orders.size();
      EXPECT_EQ(order.kind, is_made ? online::Order::Kind::kFree : online::Order::Kind::kSpend) << i;
      if (!is_made) continue;
      EXPECT_EQ(order.again_at, again) << i;
      EXPECT_EQ(order.saved_ns_per_byte, 10.0 / 100);
      ++freed;
    }
  }
  EXPECT_GT(freed, 0);
}

// Value 0 is dear and small, 1 is computed from it, 2 is written over it, and the last call reads 1 and 2.
TEST(OnlineScript, CopiesWhatIsWrittenOverAndReadLater) {
  online::StepLog log;
  log.bytes = {10, 1000, 10, 1000, 10};
  log.calls.push_back({.name = "dear", .makes = {{0}}, .cost_ns = 1'000'000, .repeatable = true});
  log.calls.push_back({.name = "cheap", .reads = {0}, .makes = {{1}}, .cost_ns = 1, .repeatable = true});
  log.calls.push_back({.name = "write_", .reads = {0}, .makes = {{2, 0}}, .cost_ns = 1, .repeatable = true});
  log.calls.push_back({.name = "large", .reads = {2}, .makes = {{3}}, .cost_ns = 500'000, .repeatable = true});
  log.calls.push_back({.name = "backward", .reads = {2, 3}, .makes = {{4}}, .cost_ns = 1, .pass = 1});
  log.calls.push_back({.name = "backward", .reads = {1, 2}, .cost_ns = 1, .pass = 1});
  const online::Script script = online::plan_log(log, 1500, 1);
  ASSERT_TRUE(script.has_plan());
  EXPECT_EQ(script.recompute_ns, 1);
  EXPECT_EQ(script.orders[2].copy, std::vector<std::uint32_t>{0});
}

TEST(OnlineScript, CountsWhatLiesOutside) {
  constexpr std::int64_t kBudget = 12 * 100 + 11 * 10;
  EXPECT_EQ(online::plan_log(chain_log(10), kBudget, 1).recompute_ns, 0);
  online::StepLog log = chain_log(10);
  for (online::LoggedCall& call : log.calls) call.outside_bytes = 400;
  EXPECT_GT(online::plan_log(log, kBudget, 1).recompute_ns, 0);
  // It comes before memory is short, and stays.
  for (std::size_t i = 0; i < 3; ++i) log.calls[i].outside_bytes = 0;
  EXPECT_GT(online::plan_log(log, kBudget, 1).recompute_ns, 0);
  // It is gone before memory is short.
  for (std::size_t i = 0; i < log.calls.size(); ++i) log.calls[i].outside_bytes = i < 3 ? 400 : 0;
  EXPECT_EQ(online::plan_log(log, kBudget, 1).recompute_ns, 0);
}

TEST(OnlineScript, HasNoOrdersWhereNothingFits) {
  const online::Script script = online::plan_log(chain_log(10), 150, 1);
  EXPECT_FALSE(script.has_plan());
}

TEST(OnlineScript, NamesABudgetThatIsEnough) {
  const online::StepLog log = chain_log(24);
  const auto enough = online::least_budget(log, 300, 0.5);
  ASSERT_TRUE(enough.has_value());
  EXPECT_GT(*enough, 300);
  EXPECT_LT(*enough, 24 * 100);
  const auto more = online::least_budget(log, 300, 0.05);
  ASSERT_TRUE(more.has_value());
  EXPECT_GT(*more, *enough);
}

}  // namespace
}  // namespace reprise::test
