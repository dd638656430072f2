// Compares steps that run as CUDA graphs with plain libtorch training, on CUDA, or anywhere with the fake of
// fake_cuda_graph.cc.
#include "runtime/device/cuda_graph.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "runtime/device/meter.h"
#include "runtime/training.h"

namespace reprise::test {
namespace {

constexpr int kLongSteps = 7;  // The first two run without a graph.
constexpr std::int64_t kMiB = 1 << 20;

class CudaGraphSteps : public testing::Test {
 protected:
  void SetUp() override {
    try {
      check_cuda_graphs(test_device());
    } catch (const InputError& error) {
      GTEST_SKIP() << error.what();
    }
    at::globalContext().setDeterministicCuDNN(true);
  }
};

StepOptions graphs(std::optional<std::int64_t> budget = {}) {
  return {.budget_bytes = budget, .planning_seconds = 2, .cuda_graphs = CudaGraphs::kOn};
}

// Counts the steps that ran as graphs.
RunStep counting(TrainingStep& step, int& as_graphs) {
  return [&](const Batch& batch) {
    at::Tensor loss = step.run(batch);
    as_graphs += step.summary().as_cuda_graph ? 1 : 0;
    return loss;
  };
}

TEST_F(CudaGraphSteps, TrainBitForBit) {
  for (Case (*make)() : {resnet_case, attention_case, in_place_case}) {
    const Case plain = make();
    const Case network = make();
    TrainingStep step = capture(network.module, network.loss, network.batch(1));
    step.plan(graphs());
    int as_graphs = 0;
    const Trained expected = train(plain, plainly(plain), sgd, 1, kLongSteps);
    expect_same(expected, train(network, counting(step, as_graphs), sgd, 1, kLongSteps));
    EXPECT_EQ(as_graphs, kLongSteps - 2);
  }
}

TEST_F(CudaGraphSteps, AddUpGradientsOfMicroBatches) {
  const Case plain = resnet_case();
  const Case network = resnet_case();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  step.plan(graphs());
  int as_graphs = 0;
  expect_same(train(plain, plainly(plain), adam, 3), train(network, counting(step, as_graphs), adam, 3));
  EXPECT_EQ(as_graphs, 3 * kSteps - 2);
}

// A network that is so large that the blocks of CUDA's allocator and the workspaces of libraries hardly matter.
Case large_case() {
  const std::int64_t size = test_device().is_cpu() ? 16 : 64;
  const std::int64_t count = test_device().is_cpu() ? 8 : 512;
  return classifier<SmallResNet>([=] { return torch::randn({count, 3, size, size}); });
}

TEST_F(CudaGraphSteps, StayInsideTheBudget) {
  const Case plain = large_case();
  const Trained expected = train(plain, plainly(plain), sgd, 1, kLongSteps);
  plain.module->to(at::kCPU);
  const Case network = large_case();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  const std::int64_t full = step.plan({}).peak_bytes;
  const std::int64_t budget = full * 8 / 10 + (test_device().is_cpu() ? 0 : 128 * kMiB);
  step.plan(graphs(budget));
  int as_graphs = 0;
  const auto run = [&](const Batch& batch) {
    at::Tensor loss = counting(step, as_graphs)(batch);
    EXPECT_LE(step.measured_peak_bytes(), budget);
    EXPECT_LE(step.summary().peak_bytes, budget);
    EXPECT_GT(step.summary().recompute_ns, 0);
    return loss;
  };
  expect_same(expected, train(network, run, sgd, 1, kLongSteps));
  EXPECT_EQ(as_graphs, kLongSteps - 2);
}

TEST_F(CudaGraphSteps, FollowParametersThatMove) {
  const auto moving = [](const Case& network, const RunStep& run) {
    return [&network, run, steps = 0](const Batch& batch) mutable {
      if (++steps == 5) {
        for (at::Tensor& parameter : network.module->parameters()) parameter.set_data(parameter.detach().clone());
      }
      return run(batch);
    };
  };
  const Case plain = resnet_case();
  const Case network = resnet_case();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  step.plan(graphs());
  int as_graphs = 0;
  const Trained expected = train(plain, moving(plain, plainly(plain)), sgd, 1, kLongSteps);
  expect_same(expected, train(network, moving(network, counting(step, as_graphs)), sgd, 1, kLongSteps));
  EXPECT_EQ(as_graphs, kLongSteps - 2);
}

TEST_F(CudaGraphSteps, RefuseParametersThatMoveAllTheTime) {
  const Case network = in_place_case();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  step.plan(graphs());
  const std::string error = input_error([&] {
    for (int i = 0; i < 20; ++i) {
      for (at::Tensor& parameter : network.module->parameters()) parameter.set_data(parameter.detach().clone());
      step.run(network.batch(1));
    }
  });
  EXPECT_NE(error.find("changed 8 times"), std::string::npos) << error;
  step.plan({});
  step.run(network.batch(1));
  EXPECT_FALSE(step.summary().as_cuda_graph);
}

TEST_F(CudaGraphSteps, HandOutNothingThatTheNextStepChanges) {
  const Case network = resnet_case();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  step.plan(graphs());
  for (int i = 0; i < 3; ++i) step.run(network.batch(i));
  const auto buffers = network.module->named_buffers();
  const at::Tensor& average = buffers["blocks.0.first_norm.running_mean"];
  network.module->zero_grad();
  const auto version = average._version();
  const at::Tensor loss = step.run(network.batch(4));
  EXPECT_TRUE(step.summary().as_cuda_graph);
  EXPECT_GT(average._version(), version);
  std::vector<at::Tensor> kept{loss};
  for (const at::Tensor& parameter : network.module->parameters()) kept.push_back(parameter.grad());
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : kept) copies.push_back(tensor.clone());
  network.module->zero_grad();
  step.run(network.batch(5));
  for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(same_bits(kept[i], copies[i])) << i;
}

TEST_F(CudaGraphSteps, WriteToTheBatchAsTheCodeDoes) {
  const auto make = [] {
    Case network = in_place_case();
    network.loss = [loss = network.loss](const Batch& batch) {
      at::Tensor(batch[0]).div_(2);
      return loss(batch);
    };
    return network;
  };
  const Case plain = make();
  const Case network = make();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  step.plan(graphs());
  for (int i = 0; i < 4; ++i) {
    const Batch expected = network.batch(i);
    const Batch batch = network.batch(i);
    plainly(plain)(expected);
    step.run(batch);
    EXPECT_TRUE(same_bits(expected[0], batch[0])) << i;
  }
  EXPECT_TRUE(step.summary().as_cuda_graph);
}

TEST_F(CudaGraphSteps, StayWhereBatchesOfOtherShapesFitBesideThem) {
  const Case plain = resnet_case();
  const Case network = resnet_case();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  step.plan(graphs(step.plan({}).peak_bytes * 2 + 512 * kMiB));
  std::vector<bool> as_graphs;
  for (const std::int64_t count : {8, 8, 8, 3, 8, 8, 8}) {
    const Batch batch = network.batch(count);
    const Batch part{batch[0].slice(0, 0, count), batch[1].slice(0, 0, count)};
    torch::manual_seed(7);
    const at::Tensor expected = plainly(plain)(part).detach();
    torch::manual_seed(7);
    EXPECT_TRUE(same_bits(expected, step.run(part))) << as_graphs.size();
    as_graphs.push_back(step.summary().as_cuda_graph);
  }
  EXPECT_EQ(as_graphs, (std::vector<bool>{false, false, true, false, true, true, true}));
}

// A comparison (`equal`) waits for the device, which is not possible in a recording.
TEST_F(CudaGraphSteps, LeaveEverythingUsableWhereAnOperatorCannotBeRecorded) {
  if (test_device().is_cpu()) GTEST_SKIP() << "only CUDA refuses operators";
  const auto make = [] {
    Case network = resnet_case();
    network.loss = [loss = network.loss](const Batch& batch) {
      return batch[0].equal(batch[0] + 0) ? loss(batch) : at::Tensor();
    };
    return network;
  };
  const Case plain = make();
  const Case network = make();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  step.plan(graphs());
  expect_same(train(plain, plainly(plain), sgd, 1, 2), train(network, planned_run(step), sgd, 1, 2));
  const std::string error = input_error([&] { step.run(network.batch(1)); });
  EXPECT_NE(error.find("an operator cannot be recorded"), std::string::npos) << error;
  const Case again = make();
  TrainingStep without = capture(again.module, again.loss, again.batch(1));
  const Case plain_again = make();
  expect_same(train(plain_again, plainly(plain_again), sgd), train(again, planned_run(without), sgd));
  const Case other = resnet_case();
  TrainingStep other_step = capture(other.module, other.loss, other.batch(1));
  other_step.plan(graphs());
  int as_graphs = 0;
  train(other, counting(other_step, as_graphs), sgd);
  EXPECT_EQ(as_graphs, kSteps - 2);
}

TEST_F(CudaGraphSteps, RefuseTensorsOnOtherDevices) {
  if (test_device().is_cpu()) GTEST_SKIP() << "all tensors are on the CPU";
  Case network = in_place_case();
  network.loss = [loss = network.loss, scale = torch::ones({})](const Batch& batch) { return loss(batch) * scale; };
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  step.plan(graphs());
  const std::string error = input_error([&] {
    for (int i = 0; i < 3; ++i) step.run(network.batch(i));
  });
  EXPECT_NE(error.find("lies on cpu"), std::string::npos) << error;
}

}  // namespace
}  // namespace reprise::test
