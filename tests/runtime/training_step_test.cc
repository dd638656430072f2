// Compares captured steps with plain libtorch training bit for bit, and measured peaks with predicted ones to the byte.
#include <c10/core/AllocatorConfig.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

#include "reprise/error.h"
#include "runtime/device/meter.h"
#include "runtime/files/program_io.h"
#include "runtime/record/capture_step.h"
#include "runtime/training.h"

namespace reprise::test {
namespace {

struct Named {
  const char* name;
  Case (*make)();
  // The share of the plain step's own bytes that a plan must be able to reach. On CUDA there is none for networks whose
  // peak depends on what CUDA's libraries do.
  double on_cpu;
  std::optional<double> on_cuda;
  [[nodiscard]] std::optional<double> reachable() const { return test_device().is_cpu() ? on_cpu : on_cuda; }
};

// The peak is the predicted one to the byte on the CPU. On CUDA, libraries may use another algorithm than when they
// were measured.
void expect_predicted(const TrainingStep& step) {
  const auto predicted = static_cast<double>(step.summary().peak_bytes);
  const auto measured = static_cast<double>(step.measured_peak_bytes());
  EXPECT_NEAR(measured, predicted, test_device().is_cpu() ? 0 : 0.01 * predicted);
}

// A budget of this share of what the step needs. On CUDA, it also counts the workspaces of libraries, which lie beside
// the step.
std::int64_t budget_at(TrainingStep& step, double share) {
  const std::int64_t full = step.plan({}).peak_bytes;
  const std::int64_t beside = test_device().is_cpu() ? 0 : read_meter(test_device()).allocated_bytes;
  const std::int64_t losses = test_device().is_cpu() ? 0 : 8192;  // for the losses that training keeps
  return beside + losses + static_cast<std::int64_t>(share * static_cast<double>(full - beside));
}

std::int64_t smallest_budget(TrainingStep& step, double seconds) {
  return step.try_plan({.budget_bytes = 1, .planning_seconds = seconds}).smallest_budget_bytes;
}

// What training allocates later and keeps: its losses and the optimizer's momentum. Everything that is allocated
// counts.
std::int64_t later_bytes(const Case& network) {
  std::int64_t bytes = 2 * kSteps * granted_bytes(test_device(), 8);
  for (const at::Tensor& parameter : network.module->parameters()) {
    bytes += granted_bytes(test_device(), static_cast<std::int64_t>(parameter.nbytes()));
  }
  return bytes;
}

struct Budgets {
  std::int64_t plain;
  std::int64_t smallest;
};

// The plain peak and the smallest budget. Checks that the smallest budget is low enough, and that its plan recomputes.
Budgets budgets_of(TrainingStep& step, const Case& network, std::optional<double> reachable) {
  const Batch batch = test_device().is_cpu() ? Batch() : network.batch(1);  // On CUDA, it counts only if it exists.
  const StepSummary plain = step.plan({});
  EXPECT_EQ(plain.recompute_ns, 0);
  const std::int64_t smallest = smallest_budget(step, 2);
  const StepSummary tightest = step.plan({.budget_bytes = smallest, .planning_seconds = 1e-9});
  EXPECT_LE(tightest.peak_bytes, smallest);
  if (reachable) {
    EXPECT_LE(smallest, budget_at(step, *reachable));
    EXPECT_GT(tightest.recompute_ns, 0);
  }
  return {.plain = plain.peak_bytes, .smallest = smallest};
}

class Networks : public testing::TestWithParam<Named> {};

TEST_P(Networks, TrainBitForBitAtManyBudgets) {
  const Case plain_case = GetParam().make();
  const Trained plain = train(plain_case, plainly(plain_case), sgd);
  for (const int eighths : {8, 4, 0}) {  // how far the budget is on the way from the smallest one to the plain peak
    SCOPED_TRACE(eighths);
    const Case network = GetParam().make();
    TrainingStep step = capture(network.module, network.loss, network.batch(1));
    const Budgets budgets = budgets_of(step, network, GetParam().reachable());
    const std::int64_t budget =
        budgets.smallest + (budgets.plain - budgets.smallest) * eighths / 8 + later_bytes(network);
    step.plan({.budget_bytes = budget, .planning_seconds = 2});
    std::int64_t recomputed = 0;
    const auto run = [&](const Batch& batch) {
      at::Tensor loss = step.run(batch);
      expect_predicted(step);
      EXPECT_LE(step.measured_peak_bytes(), budget);
      recomputed = step.summary().recompute_ns;
      return loss;
    };
    expect_same(plain, train(network, run, sgd));
    if (test_device().is_cpu()) {
      EXPECT_EQ(recomputed > 0, eighths < 8);
    }
  }
}

TEST_P(Networks, AreTheSameStepAfterAFile) {
  if (!test_device().is_cpu() && GetParam().make == recurrent_case) GTEST_SKIP() << "its weights lie in one memory";
  const Case network = GetParam().make();
  const ModuleState state = state_of(*network.module);
  const Batch batch = network.batch(1);
  const std::string text = format_program(capture_step("net", state, network.loss, batch));
  const StepProgram read = parse_program(text, "net.program.json");
  EXPECT_EQ(format_program(read), text);
  check_step(read, state, network.loss, batch);  // It throws if the step does not do what the code does.
}

// With cuDNN, a recurrent layer is one operator, which runs once, so there is little to save on CUDA.
INSTANTIATE_TEST_SUITE_P(All, Networks,
                         testing::Values(Named{"resnet", resnet_case, 0.7, 0.7},
                                         Named{"attention", attention_case, 0.7, 0.7},
                                         Named{"recurrent", recurrent_case, 0.85, std::nullopt},
                                         Named{"in_place", in_place_case, 0.9, std::nullopt}),
                         [](const auto& one) { return one.param.name; });

TEST(TrainingStep, AddsUpGradientsOfMicroBatchesAndWorksWithAdam) {
  const Case plain = resnet_case();
  const Case network = resnet_case();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  const std::int64_t full = step.plan({}).peak_bytes;
  step.plan({.budget_bytes = full, .planning_seconds = 1});
  expect_same(train(plain, plainly(plain), adam, 3), train(network, planned_run(step), adam, 3));
}

TEST(TrainingStep, CastsAsAutocastDoes) {
  if (!test_device().is_cpu()) GTEST_SKIP() << "casts on the CPU";
  const auto cast = [](Case network) {
    network.loss = [loss = network.loss](const Batch& batch) {
      const Autocast autocast;
      return loss(batch);
    };
    return network;
  };
  const Case plain = cast(attention_case());
  const Case network = cast(attention_case());
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  step.plan({.budget_bytes = step.plan({}).peak_bytes * 9 / 10, .planning_seconds = 1});
  expect_same(train(plain, plainly(plain), sgd), train(network, planned_run(step), sgd));
}

// A network with a weight that is used twice and one that is not used, with a gradient that is expanded and one that
// two parameters share.
struct TiedNetImpl : nn::Module {
  TiedNetImpl() : unused(register_parameter("unused", torch::zeros({3}))) {
    register_module("embed", embed);
    for (const char* name : {"a", "b"}) offsets.push_back(register_parameter(name, torch::zeros({12})));
  }
  at::Tensor forward(const at::Tensor& tokens) {
    const at::Tensor x = embed(tokens).mean(1);
    return torch::mm(x, embed->weight.t()).slice(1, 0, 5) + (offsets[0] + offsets[1]).sum();
  }
  nn::Embedding embed{20, 12};
  at::Tensor unused;
  std::vector<at::Tensor> offsets;
};
TORCH_MODULE(TiedNet);

TEST(TrainingStep, GivesTiedUnusedAndSharedGradients) {
  const auto make = [] { return classifier<TiedNet>([] { return torch::randint(0, 20, {16, 12}); }); };
  const Case plain = make();
  const Case network = make();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  expect_same(train(plain, plainly(plain), sgd, 2), train(network, planned_run(step), sgd, 2));
  EXPECT_FALSE(network.module->named_parameters()["unused"].grad().defined());
}

// A network that has one layer under two names, two parameters in one memory, both statistics of a batch norm in one
// memory, and a tensor that is all of the memory of a parameter, as cuDNN's recurrent layers see their weights.
struct SharedMemoryNetImpl : nn::Module {
  SharedMemoryNetImpl() : flat(torch::rand({2, 6, 6}) - 0.5) {
    register_module("layer", layer);
    register_module("again", layer);
    register_module("norm", norm);
    a = register_parameter("a", flat[0]);
    b = register_parameter("b", flat[1]);
    const at::Tensor both = torch::cat({torch::zeros({6}), torch::ones({6})});
    norm->running_mean.set_data(both.slice(0, 0, 6));
    norm->running_var.set_data(both.slice(0, 6, 12));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto count = static_cast<std::int64_t>(a.storage().nbytes() / sizeof(float));
    const at::Tensor all = torch::empty({0}, x.options()).set_(a.storage(), 0, {count}, {1});
    return norm(layer(layer(x)).mm(a).tanh().mm(b) * all.abs().mean()).slice(1, 0, 5);
  }
  at::Tensor flat;
  nn::Linear layer{6, 6};
  nn::BatchNorm1d norm{6};
  at::Tensor a;
  at::Tensor b;
};
TORCH_MODULE(SharedMemoryNet);

TEST(TrainingStep, KnowsWhatIsTheSameMemory) {
  const auto make = [] { return classifier<SharedMemoryNet>([] { return torch::randn({64, 6}); }); };
  const Case plain = make();
  const Case network = make();
  plainly(network)(network.batch(2));
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  EXPECT_TRUE(network.module->parameters()[0].grad().defined());
  const Case fresh = make();
  TrainingStep fresh_step = capture(fresh.module, fresh.loss, fresh.batch(1));
  if (test_device().is_cpu()) {
    const StepProgram program = capture_step("net", state_of(*fresh.module), fresh.loss, fresh.batch(1));
    EXPECT_THAT([&] { (void)format_program(program); },
                testing::ThrowsMessage<InputError>(testing::HasSubstr("'a' and 'b' lie in one memory")));
  }
  expect_same(train(plain, plainly(plain), sgd, 2), train(fresh, planned_run(fresh_step), sgd, 2));
}

// The loss writes to its batch, indexes with integers, and makes tensors by hand.
TEST(TrainingStep, TakesOrdinaryCode) {
  const auto make = [] {
    Case network = in_place_case();
    network.loss = [loss = network.loss](const Batch& batch) {
      at::Tensor x = batch[0];
      x.div_(2).add_(torch::tensor(std::vector<float>{1, 2, 3, 4, 5, 6}).to(x.device()));
      const at::Tensor order = torch::arange(x.size(0) - 1, -1, -1, x.device());
      std::vector<float> by_hand{0.5, 0.25, 1, 1, 1, 2};
      x = x.index({order}) * torch::from_blob(by_hand.data(), {6}).to(x.device());
      return loss({x, batch[1]});
    };
    return network;
  };
  const Case plain = make();
  const Case network = make();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  const auto copied = [](const RunStep& run) {
    return [run](const Batch& batch) { return run({batch[0].clone(), batch[1]}); };
  };
  expect_same(train(plain, copied(plainly(plain)), sgd), train(network, copied(planned_run(step)), sgd));
}

TEST(TrainingStep, TakesSlicesOfADatasetWithoutCapturingAgain) {
  const Case network = in_place_case();
  int calls = 0;
  const LossFunction counted = [&](const Batch& batch) {
    ++calls;
    return network.loss(batch);
  };
  const Batch all = network.batch(1);
  TrainingStep step = capture(network.module, counted, {all[0].slice(0, 0, 8), all[1].slice(0, 0, 8)});
  const int before = calls;
  for (std::int64_t i = 0; i < 64; i += 8) step.run({all[0].slice(0, i, i + 8), all[1].slice(0, i, i + 8)});
  EXPECT_EQ(calls, before);
  network.module->to(torch::kDouble);  // After this, the step has to be captured anew.
  step.run({all[0].slice(0, 0, 8).to(torch::kDouble), all[1].slice(0, 0, 8)});
  EXPECT_GT(calls, before);
}

TEST(TrainingStep, PlansForWhatIsAsked) {
  const Case network = resnet_case();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  const std::int64_t budget = budget_at(step, 0.85);  // Chen's smallest peak depends on measured times.
  const StepOptions tight{.budget_bytes = budget, .planner = "chen", .planning_seconds = 1};
  EXPECT_EQ(step.plan(tight).planner, "chen");
  EXPECT_GT(step.summary().recompute_ns, 0);
  EXPECT_EQ(step.plan({.budget_bytes = budget, .planning_seconds = 1}).planner, "auto");
  EXPECT_EQ(step.plan({}).recompute_ns, 0);
}

TEST(TrainingStep, CountsBlocksAsTheyAreAskedFor) {
  using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;
  const auto splits = [](const char* environment) {
    setenv("PYTORCH_ALLOC_CONF", environment, 1);
    c10::CachingAllocator::setAllocatorSettings("expandable_segments:False");
    split_blocks_exactly(at::Device(at::kCUDA, 0));
    unsetenv("PYTORCH_ALLOC_CONF");
    return Config::use_expandable_segments();
  };
  EXPECT_FALSE(splits("expandable_segments:False"));  // The user has asked for this.
  EXPECT_TRUE(splits("garbage_collection_threshold:0.8"));
  EXPECT_TRUE(splits(""));
}

TEST(TrainingStep, LosesNoGradientWhereMemoryRunsOut) {
  if (!test_device().is_cpu()) GTEST_SKIP() << "only the CPU's allocator can be made to fail";
  const Case network = in_place_case();
  plainly(network)(network.batch(1));
  for (std::int64_t nth = 1; nth < 60; ++nth) {
    const Batch batch = network.batch(2);
    fail_allocation(nth);
    try {
      (void)capture(network.module, network.loss, batch);
    } catch (const c10::Error&) {
    }
    fail_allocation(0);
    for (const at::Tensor& parameter : network.module->parameters()) {
      ASSERT_TRUE(parameter.grad().defined()) << nth;
    }
  }
}

TEST(TrainingStep, LeavesFrozenParametersAlone) {
  const auto freeze = [](const Case& network) {
    for (at::Tensor& p : network.module->named_children()["stem"]->parameters()) p.set_requires_grad(false);
  };
  const Case plain = resnet_case();
  const Case network = resnet_case();
  freeze(plain);
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  freeze(network);  // After this, the step has to be captured anew.
  expect_same(train(plain, plainly(plain), sgd), train(network, planned_run(step), sgd));
  EXPECT_FALSE(network.module->named_children()["stem"]->parameters()[0].grad().defined());
}

TEST(TrainingStep, TakesBatchesOfOtherShapesAndOtherModes) {
  const Case plain = resnet_case();
  const Case network = resnet_case();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  for (const std::int64_t count : {4, 2, 3, 2}) {
    for (const bool training : {true, false}) {
      plain.module->train(training);
      network.module->train(training);
      const Batch batch = network.batch(count);
      const Batch part{batch[0].slice(0, 0, count), batch[1].slice(0, 0, count)};
      torch::manual_seed(7);
      const at::Tensor expected = plainly(plain)(part).detach();
      torch::manual_seed(7);
      EXPECT_TRUE(same_bits(expected, step.run(part))) << count;
    }
  }
  expect_same(train(plain, plainly(plain), sgd), train(network, planned_run(step), sgd));
}

TEST(TrainingStep, CaptureLeavesEverythingAsItWas) {
  const Case network = resnet_case();
  const Batch batch = network.batch(1);
  plainly(network)(batch);
  std::vector<at::Tensor> before;
  std::vector<at::Tensor> after;
  const auto note = [&](std::vector<at::Tensor>& to) {
    for (const at::Tensor& p : network.module->parameters()) to.push_back(p.detach().clone());
    for (const at::Tensor& p : network.module->parameters()) to.push_back(p.grad().clone());
    for (const at::Tensor& b : network.module->buffers()) to.push_back(b.clone());
    to.push_back(batch[0].clone());
  };
  note(before);
  torch::manual_seed(3);
  const at::Tensor random = torch::rand({2});
  torch::manual_seed(3);
  const TrainingStep step = capture(network.module, network.loss, batch);
  EXPECT_TRUE(same_bits(random, torch::rand({2})));
  note(after);
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(same_bits(before[i], after[i])) << i;
}

TEST(TrainingStep, SaysWhereThereAreNoCudaGraphs) {
  if (!test_device().is_cpu()) GTEST_SKIP() << "there may be";
  const Case network = in_place_case();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  const std::string error = input_error([&] { step.plan({.cuda_graphs = CudaGraphs::kOn}); });
  EXPECT_NE(error.find("CUDA graphs need a CUDA device: plan it with CudaGraphs::kOff"), std::string::npos) << error;
  step.run(network.batch(1));  // It runs as it was planned before.
}

// A loss that cannot be captured, and the part of the message that says why.
struct Refused {
  const char* name;
  std::function<at::Tensor(nn::Linear, const Batch&)> loss;
  const char* message;
};

class Refusals : public testing::TestWithParam<Refused> {};

TEST_P(Refusals, AreExplained) {
  torch::manual_seed(0);
  const nn::Linear layer(4, 4);
  const auto loss = [&](const Batch& batch) { return GetParam().loss(layer, batch); };
  const std::string error = input_error([&] { (void)capture(layer, loss, {torch::rand({3, 4})}); });
  EXPECT_NE(error.find(GetParam().message), std::string::npos) << error;
}

at::Tensor scaled_by_hand(nn::Linear layer, const Batch& batch) {
  const float first = *batch[0].const_data_ptr<float>();
  return layer(batch[0]).square().mean() * first;
}

INSTANTIATE_TEST_SUITE_P(
    All, Refusals,
    testing::Values(Refused{"item",
                            [](nn::Linear layer, const Batch& batch) {
                              const at::Tensor y = layer(batch[0]).mean();
                              return y * y.item<double>();
                            },
                            "reads a number out of a tensor"},
                    Refused{"nonzero",
                            [](nn::Linear layer, const Batch& batch) {
                              const at::Tensor y = layer(batch[0]);
                              return y.masked_select(y > 0).mean();
                            },
                            "depends on the numbers in its tensors"},
                    Refused{"by_hand", scaled_by_hand, "on other numbers the loss is not what the code computes"},
                    Refused{"outer_batch",
                            [](nn::Linear layer, const Batch& batch) {
                              return batch.empty() ? at::Tensor() : layer(torch::ones({3, 4})).mean();
                            },
                            "does not read the batch"},
                    Refused{"outer_parameter",
                            [](nn::Linear layer, const Batch& batch) {
                              static const at::Tensor scale = torch::ones({4}).set_requires_grad(true);
                              return (layer(batch[0]) * scale).mean();
                            },
                            "is not a parameter of the module"},
                    Refused{"mask",
                            [](nn::Linear layer, const Batch& batch) {
                              const at::Tensor y = layer(batch[0]);
                              return y.index({y > 0}).mean();
                            },
                            "how many elements a mask selects"},
                    Refused{"outer_write",
                            [total = torch::zeros({4})](nn::Linear layer, const Batch& batch) {
                              const at::Tensor y = layer(batch[0]);
                              at::Tensor(total).add_(y.detach().sum(0));
                              return y.mean();
                            },
                            "Register it as a buffer"},
                    Refused{"no_gradient", [](const nn::Linear&, const Batch& batch) { return batch[0].mean(); },
                            "must be a tensor of one number"}),
    [](const auto& one) { return one.param.name; });

// The gradient of SiLU is an operator that has kernels, and a form that is made of others beside them.
struct SiluNetImpl : nn::Module {
  SiluNetImpl() {
    register_module("layer", layer);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = layer(x);
    return head(torch::silu(y) + torch::mish(y));
  }
  nn::Linear layer{6, 8};
  nn::Linear head{8, 5};
};
TORCH_MODULE(SiluNet);

TEST(TrainingStep, RecordsOperatorsThatCouldBeMadeOfOthers) {
  const auto make = [] { return classifier<SiluNet>([] { return torch::randn({7, 6}); }); };
  const Case plain = make();
  const Case network = make();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  expect_same(train(plain, plainly(plain), sgd), train(network, planned_run(step), sgd));
}

}  // namespace
}  // namespace reprise::test
