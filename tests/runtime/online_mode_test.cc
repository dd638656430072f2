// The online mode around plain libtorch code: bits, budget, and what it leaves behind.
#include <reprise/torch/errors.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "runtime/costs/cost_book.h"
#include "runtime/costs/roofline.h"
#include "runtime/device/meter.h"
#include "runtime/files/program_io.h"
#include "runtime/kernels/kernel.h"
#include "runtime/networks.h"
#include "runtime/online/call_cost.h"
#include "runtime/online/values.h"
#include "runtime/own_cache.h"
#include "runtime/small_program.h"
#include "runtime/training.h"

namespace reprise::test {
namespace {

constexpr std::int64_t kRows = 64;  // a tensor of rows x rows takes 16 KiB

std::int64_t allocated() { return read_meter(test_device()).allocated_bytes; }

bool tells_of_hosts_access() { return online::tells_of_access() && test_device().is_cpu(); }
bool is_possible() { return online_is_available(test_device().type()); }

OnlineOptions within(std::int64_t bytes) {
  return {.budget_bytes = bytes,
          .device = test_device(),
          .smallest_bytes = 1024,
          .most_recomputation = 0,
          .planning_seconds = 0};
}

struct OnlineCase {
  const char* name;
  Case (*make)();
  std::vector<double> shares;
};

class OnlineNetworks : public testing::TestWithParam<OnlineCase> {};

TEST_P(OnlineNetworks, TrainBitForBitInsideTheBudget) {
  if (!is_possible()) GTEST_SKIP() << "this build cannot do it on " << test_device();
  install_meter();
  repeat_bits();
  const auto run = [&] {
    const Case network = GetParam().make();
    return train(network, plainly(network), adam, /*micro_batches=*/2, /*steps=*/3);
  };
  split_blocks_exactly(test_device());
  const Trained plain = run();
  const std::int64_t before = allocated();
  reset_meter_peak(test_device());
  run();
  const std::int64_t peak = read_meter(test_device()).peak_bytes - before;
  int kept = 0;
  for (const double share : GetParam().shares) {
    SCOPED_TRACE(share);
    const std::int64_t budget = before + static_cast<std::int64_t>(share * static_cast<double>(peak));
    {
      Online online(within(budget));
      Trained trained;
      try {
        trained = run();
      } catch (const BudgetExceeded&) {
        if (test_device().is_cpu()) throw;
        continue;  // Kernels of other devices need more at once.
      }
      ++kept;
      EXPECT_LE(read_meter(test_device()).peak_bytes, budget);
      EXPECT_GT(online.summary().evictions, 0);
      EXPECT_GE(online.summary().plain_peak_bytes, budget);
      online.end();
      expect_same(plain, trained);
    }
    EXPECT_EQ(allocated(), before);
  }
  if (kept == 0) GTEST_SKIP() << "no budget was kept; this happens only away from the CPU";
}

INSTANTIATE_TEST_SUITE_P(All, OnlineNetworks,
                         testing::Values(OnlineCase{"resnet", resnet_case, {0.8, 0.6, 0.5}},
                                         OnlineCase{"attention", attention_case, {0.9, 0.8}},
                                         OnlineCase{"in_place", in_place_case, {0.95}}),
                         [](const auto& tested) { return std::string(tested.param.name); });

// A chain of results, of which only a few fit into the budget.
class OnlineChain : public testing::Test {
 protected:
  static constexpr int kLength = 12;

  void SetUp() override {
    if (!is_possible()) GTEST_SKIP() << "this build cannot do it on " << test_device();
    install_meter();
    repeat_bits();
    torch::manual_seed(3);
    x_ = torch::randn({kRows, kRows}, test_device());
    for (at::Tensor y = x_; expected_.size() < kLength; expected_.push_back(y.clone())) y = torch::tanh(y * 1.1);
    before_ = allocated();
  }
  // The budget has room for so many results.
  [[nodiscard]] std::int64_t room_for(int results) const { return before_ + results * result_bytes(); }
  [[nodiscard]] static std::int64_t result_bytes() { return kRows * kRows * 4; }
  [[nodiscard]] std::vector<at::Tensor> run() const {
    std::vector<at::Tensor> made;
    for (at::Tensor y = x_; made.size() < kLength; made.push_back(y)) y = torch::tanh(y * 1.1);
    return made;
  }
  void expect_all(const std::vector<at::Tensor>& made) const {
    for (std::size_t i = 0; i < made.size(); ++i) EXPECT_TRUE(same_bits(made[i], expected_[i])) << i;
  }

  at::Tensor x_;
  std::vector<at::Tensor> expected_;
  std::int64_t before_ = 0;
};

TEST_F(OnlineChain, ReturnsWhatWasTakenAway) {
  std::vector<at::Tensor> made;
  {
    Online online(within(room_for(6)));
    made = run();
    EXPECT_LE(allocated(), room_for(6));
    EXPECT_GE(online.summary().evictions, kLength - 6);
    for (std::size_t i = 0; i < made.size(); ++i) {
      EXPECT_EQ(made[i].sum().item<float>(), expected_[i].sum().item<float>());
    }
    EXPECT_GT(online.summary().repeated_calls, 0);
    EXPECT_LE(read_meter(test_device()).peak_bytes, room_for(6));
    online.set_budget(room_for(3 * kLength));
  }
  expect_all(made);
}

TEST_F(OnlineChain, RefusesAndSaysWhatIsInTheWay) {
  const Online online(within(room_for(1)));
  const std::string message = input_error([&] { (void)torch::cat({x_, x_, x_}); });
  EXPECT_NE(message.find("aten::cat asks for 48.00 KiB"), std::string::npos) << message;
  EXPECT_NE(message.find("cannot be computed again"), std::string::npos) << message;
}

TEST_F(OnlineChain, PinsWhoseAddressIsTaken) {
  if (!tells_of_hosts_access()) GTEST_SKIP() << "this libtorch does not tell, or the host cannot read the memory";
  const Online online(within(room_for(8)));
  std::vector<at::Tensor> made = run();
  const auto* address = static_cast<const float*>(made[0].data_ptr());
  for (int i = 0; i < 3; ++i) (void)run();
  EXPECT_EQ(made[0].data_ptr(), address);
  EXPECT_EQ(address[5], expected_[0].flatten()[5].item<float>());
}

TEST_F(OnlineChain, DoesNotComputeFromWhatHasChanged) {
  std::vector<at::Tensor> made;
  {
    Online online(within(room_for(6)));
    made = run();
    online.set_budget(room_for(3 * kLength));
    x_.zero_();
  }
  expect_all(made);
}

TEST_F(OnlineChain, RefusesAddressesWhereNobodyTellsOfThem) {
  if (online::tells_of_access()) GTEST_SKIP() << "this libtorch tells when an address is taken";
  std::vector<at::Tensor> made;
  {
    Online online(within(room_for(6)));
    made = run();
    for (const at::Tensor& y : made) {
      const auto address = [&y] {
        try {
          (void)y.data_ptr();
        } catch (const c10::Error& error) {
          return std::string(error.what_without_backtrace());
        }
        return std::string();
      };
      EXPECT_NE(address().find("torch.empty(x.shape, dtype=x.dtype).copy_(x)"), std::string::npos);
      EXPECT_NE(torch::empty(y.sizes(), y.options()).copy_(y).data_ptr(), nullptr);
    }
    online.set_budget(room_for(3 * kLength));
  }
  for (const at::Tensor& y : made) EXPECT_NE(y.data_ptr(), nullptr);
  expect_all(made);
}

TEST_F(OnlineChain, SeesWritesByHand) {
  if (!tells_of_hosts_access()) GTEST_SKIP() << "this libtorch does not tell, or the host cannot write the memory";
  std::vector<at::Tensor> made;
  {
    Online online(within(room_for(6)));
    made = run();
    online.set_budget(room_for(3 * kLength));
    x_.data_ptr<float>()[0] = 1e6;
  }
  expect_all(made);
}

TEST_F(OnlineChain, SurvivesACallThatThrows) {
  std::vector<at::Tensor> made;
  {
    Online online(within(room_for(6)));
    made = run();
    EXPECT_THROW((void)made[0].matmul(torch::ones({3}, test_device())), c10::Error);
    EXPECT_THROW(made[1].add_(torch::ones({3, 5}, test_device())), c10::Error);
    online.set_budget(room_for(3 * kLength));
  }
  expect_all(made);
}

TEST_F(OnlineChain, FreesWhatTheProgramDrops) {
  const Online online(within(room_for(40)));
  for (int i = 0; i < 50; ++i) (void)run();
  EXPECT_EQ(allocated(), before_);
}

TEST_F(OnlineChain, IsOneAtATime) {
  const Online online(within(room_for(8)));
  EXPECT_NE(input_error([&] { const Online second(within(room_for(8))); }).find("another"), std::string::npos);
}

TEST_F(OnlineChain, RepeatsRandomNumbersAndWritesInPlace) {
  const auto program = [&] {
    torch::manual_seed(5);
    std::vector<at::Tensor> made;
    for (int i = 0; i < 10; ++i) {
      at::Tensor y = torch::dropout(x_ * static_cast<double>(i), 0.5, true);
      y.slice(0, 0, 8).add_(1);
      y.relu_();
      made.push_back(y);
    }
    made.push_back(torch::rand({3}, test_device()));
    return made;
  };
  const std::vector<at::Tensor> plain = program();
  const std::int64_t before = allocated();
  std::vector<at::Tensor> made;
  {
    Online online(within(before + 8 * result_bytes()));
    made = program();
    EXPECT_GT(online.summary().evictions, 0);
    online.set_budget(before + 100 * result_bytes());
  }
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(same_bits(plain[i], made[i])) << i;
}

TEST_F(OnlineChain, EndsThrashingWithABudgetThatDoes) {
  OnlineOptions options = within(room_for(4));
  options.most_recomputation = 1e-9;
  const Online online(options);
  const std::string message = input_error([&] {
    const std::vector<at::Tensor> made = run();
    for (int i = 0; i < 3; ++i) (void)made[0].sum(), (void)made[kLength - 1].sum(), (void)made[5].sum();
  });
  EXPECT_NE(message.find("nothing has to be computed again"), std::string::npos) << message;
}

TEST(OnlineCalls, CostWhatCapturedStepsHaveMeasured) {
  const CapturedStep step{.program = parse_program(small_program(), "small").program};
  CostBook book(at::kCPU);
  (void)book.price(step);
  const Call& product = *step.program->ops.front().call;
  const std::int64_t measured_ns = book.calls().at(Kernel(product).describe(*step.program)).time_ns;
  const auto card = online::card_of(product.op, at::kCPU);
  online::CallCosts costs(at::kCPU);
  const auto ns = [&](std::int64_t rows) {
    const std::vector<c10::IValue> arguments{at::ones({rows, 3}), at::ones({rows, 3})};
    const std::vector<c10::IValue> results{at::ones({rows, 3})};
    return costs.ns(*card, product.op, arguments, results);
  };
  EXPECT_EQ(ns(2), measured_ns);
  EXPECT_EQ(ns(4), rates_of(at::kCPU).floor_ns) << "nobody has measured this one";
}

TEST(Online, IsRefusedWhereItIsNotPossible) {
  const auto begin = [](std::int64_t bytes) { return input_error([&] { const Online online(within(bytes)); }); };
  if (is_possible()) {
    EXPECT_NE(begin(0).find("must be positive"), std::string::npos);
  }
  const auto on = [](at::Device device) {
    return input_error([&] { const Online online({.budget_bytes = 1 << 20, .device = device}); });
  };
  EXPECT_NE(on(at::kMeta).find("works on the CPU and on CUDA, not on meta"), std::string::npos);
  if (!online_is_available(at::kCUDA)) {
    EXPECT_NE(on(at::kCUDA).find("CUDA's headers"), std::string::npos);
  }
}

}  // namespace
}  // namespace reprise::test
