// Training with checkpoints gives the same bits as training without them, and changes everything only once.
#include <gtest/gtest.h>
#include <reprise/torch.h>  // It comes first, because it has to compile on its own.
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device/generator.h"
#include "runtime/device/meter.h"
#include "runtime/training.h"

namespace reprise {
namespace {

using Tensors = std::vector<at::Tensor>;
namespace nn = torch::nn;

void expect_same(const Tensors& expected, const Tensors& actual) {
  ASSERT_EQ(expected.size(), actual.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(expected[i].defined(), actual[i].defined()) << "tensor " << i;
    if (!expected[i].defined()) continue;
    EXPECT_EQ(expected[i].scalar_type(), actual[i].scalar_type()) << "tensor " << i;
    EXPECT_TRUE(at::equal(expected[i], actual[i])) << "tensor " << i;
  }
}

nn::Sequential network() {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1)), nn::BatchNorm2d(8), nn::ReLU(),
                        nn::Dropout(0.3), nn::Conv2d(nn::Conv2dOptions(8, 8, 3).padding(1)), nn::BatchNorm2d(8),
                        nn::ReLU(), nn::Flatten(), nn::Linear(8 * 8 * 8, 10));
}

// Trains three steps from a fixed seed. Returns the losses, then parameters, gradients and buffers, then the state of
// the generator.
Tensors train(const std::function<at::Tensor(const nn::Sequential&, const at::Tensor&)>& forward) {
  torch::manual_seed(1);
  const nn::Sequential model = network();
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  Tensors seen;
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const at::Tensor x = torch::randn({4, 3, 8, 8});
    const at::Tensor loss = forward(model, x).square().mean();
    loss.backward();
    optimizer.step();
    seen.push_back(loss.detach());
  }
  for (const at::Tensor& parameter : model->parameters()) {
    seen.push_back(parameter.detach());
    seen.push_back(parameter.grad());
  }
  for (const at::Tensor& buffer : model->buffers()) seen.push_back(buffer);
  seen.push_back(generator_state(at::kCPU));
  return seen;
}

TEST(CheckpointSequential, TrainsAsWithout) {
  const Tensors plain = train([](nn::Sequential model, const at::Tensor& x) { return model->forward(x); });
  for (std::int64_t segments = 1; segments <= 9; ++segments) {
    SCOPED_TRACE(segments);
    expect_same(plain, train([&](const nn::Sequential& model, const at::Tensor& x) {
                  return checkpoint_sequential(model, segments, x);
                }));
  }
}

TEST(CheckpointSequential, UpdatesStatisticsOnce) {
  const nn::BatchNorm2d norm(3);
  const nn::Sequential model(nn::Tanh(), norm, nn::Tanh());
  checkpoint_sequential(model, 3, torch::randn({2, 3, 8, 8})).sum().backward();
  EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 1);
}

TEST(CheckpointSequential, RefusesSegmentsThatThereAreNoLayersFor) {
  const nn::Sequential model = network();
  const at::Tensor x = torch::randn({2, 3, 8, 8});
  for (const std::int64_t segments : {-1, 0, 10}) {
    EXPECT_NE(input_error([&] { (void)checkpoint_sequential(model, segments, x); }).find("for 9 layers"),
              std::string::npos);
  }
}

// The model has sixteen layers that save a megabyte each.
TEST(CheckpointSequential, TakesLessMemory) {
  nn::Sequential model;
  for (int i = 0; i < 16; ++i) model->push_back(nn::Tanh());
  const at::Tensor x = torch::randn({512, 512}, torch::requires_grad());
  const auto peak = [&](const std::function<at::Tensor()>& forward) {
    (void)read_meter(at::kCPU);  // The first call installs the meter.
    x.mutable_grad() = at::Tensor();
    const std::int64_t before = read_meter(at::kCPU).allocated_bytes;
    reset_meter_peak(at::kCPU);
    forward().sum().backward();
    return read_meter(at::kCPU).peak_bytes - before;
  };
  constexpr std::int64_t kMegabyte = 1 << 20;
  EXPECT_GE(peak([&] { return model->forward(x); }), 16 * kMegabyte);
  // Three inputs are kept, and four layers, a gradient and the one it is made from are live; the rest is small.
  EXPECT_LE(peak([&] { return checkpoint_sequential(model, 4, x); }), 9 * kMegabyte + kMegabyte / 2);
}

// A network with layers of every kind: in place, a view, pooling with indices, buffers, random numbers.
nn::Sequential pooling_network() {
  nn::Sequential model;
  for (int i = 0; i < 8; ++i) {
    model->push_back(nn::Conv2d(nn::Conv2dOptions(i == 0 ? 3 : 16, 16, 3).padding(1)));
    model->push_back(nn::BatchNorm2d(16));
    model->push_back(nn::ReLU(nn::ReLUOptions(/*inplace=*/true)));
    if (i == 6) model->push_back(nn::MaxPool2d(2));
  }
  model->push_back(nn::Dropout(0.2));
  model->push_back(nn::Flatten());
  model->push_back(nn::Linear(16 * 16 * 16, 10));
  return model;
}

struct PlannedStep {
  Tensors results;
  std::int64_t peak_bytes = 0;
};

PlannedStep one_step(nn::Sequential model, const at::Tensor& x, const ChainPlan* plan) {
  torch::manual_seed(6);
  model->zero_grad();
  const std::int64_t before = read_meter(at::kCPU).allocated_bytes;
  reset_meter_peak(at::kCPU);
  at::Tensor y = plan != nullptr ? checkpoint_sequential(model, *plan, x) : model->forward(x);
  y.backward(at::ones_like(y));
  PlannedStep step{.peak_bytes = read_meter(at::kCPU).peak_bytes - before};
  step.results.push_back(y.detach());
  for (const at::Tensor& parameter : model->parameters()) step.results.push_back(parameter.grad());
  step.results.push_back(generator_state(at::kCPU));
  return step;
}

std::int64_t smallest_budget(const nn::Sequential& model, const at::Tensor& x) {
  const std::string message = input_error([&] { (void)plan_sequential(model, x, 1); });
  return std::stoll(message.substr(message.rfind(' ') + 1));
}

TEST(PlanSequential, KeepsEveryBudgetWithTheBitsOfPlainTraining) {
  install_meter();
  torch::manual_seed(5);
  const nn::Sequential model = pooling_network();
  const at::Tensor x = torch::randn({8, 3, 32, 32});
  const PlannedStep plain = one_step(model, x, nullptr);
  const std::int64_t smallest = smallest_budget(model, x);
  EXPECT_LT(smallest, plain.peak_bytes * 2 / 3);
  const std::int64_t largest = plan_sequential(model, x, plain.peak_bytes * 2).peak_bytes;
  for (int i = 0; i <= 5; ++i) {
    const std::int64_t budget = smallest + (largest - smallest) * i / 5;
    SCOPED_TRACE(budget);
    const ChainPlan plan = plan_sequential(model, x, budget);
    EXPECT_LE(plan.peak_bytes, budget);
    const PlannedStep step = one_step(model, x, &plan);
    EXPECT_LE(step.peak_bytes, plan.peak_bytes);
    EXPECT_GE(step.peak_bytes, plan.peak_bytes * 3 / 4);
    expect_same(plain.results, step.results);
  }
}

TEST(PlanSequential, LeavesEverythingAsItWas) {
  torch::manual_seed(7);
  const nn::Sequential model = network();
  const at::Tensor x = torch::randn({4, 3, 8, 8});
  nn::Sequential(model)->forward(x).sum().backward();
  const auto state = [&] {
    Tensors all = {x.clone(), generator_state(at::kCPU)};
    for (const at::Tensor& parameter : model->parameters()) all.push_back(parameter.grad().clone());
    for (const at::Tensor& buffer : model->buffers()) all.push_back(buffer.clone());
    return all;
  };
  const Tensors before = state();
  (void)plan_sequential(model, x, std::int64_t{1} << 30);
  expect_same(before, state());
}

TEST(PlanSequential, RunsNothingTwiceWhereAllFits) {
  const nn::Sequential model = network();
  const at::Tensor x = torch::randn({4, 3, 8, 8});
  for (const ChainPlan::Part& part : plan_sequential(model, x, std::int64_t{1} << 30).parts) {
    EXPECT_FALSE(part.checkpoint);
  }
}

TEST(PlanSequential, SaysWhatIsWrong) {
  const nn::Sequential model = network();
  const at::Tensor x = torch::randn({4, 3, 8, 8});
  EXPECT_EQ(input_error([&] { (void)plan_sequential(nn::Sequential(), x, 1); }), "plan_sequential() got no layers");
  EXPECT_NE(input_error([&] { (void)plan_sequential(model, at::Tensor(), 1); }).find("needs an input"),
            std::string::npos);
  EXPECT_NE(input_error([&] {
              (void)checkpoint_sequential(model, ChainPlan{.parts = {{.layers = 3, .checkpoint = true}}}, x);
            }).find("a plan for 3 layers, but there are 9"),
            std::string::npos);
}

// Its inputs include an undefined tensor and integers. Its outputs include an undefined tensor, an input, integers and
// a tensor that the loss does not use.
Tensors mixed(const Tensors& inputs, const at::Tensor& weight) {
  const at::Tensor a = at::dropout(inputs[0] * weight, 0.5, /*train=*/true);
  return {a.index_select(0, inputs[1]), at::Tensor(), inputs[0], a.argmax(1), a.exp(), a.view({-1}), weight};
}

Tensors run_mixed(bool with_checkpoint) {
  torch::manual_seed(2);
  const at::Tensor x = torch::randn({4, 6}, torch::requires_grad());
  const at::Tensor weight = torch::randn({4, 6}, torch::requires_grad());
  const Tensors inputs = {x * 2, torch::tensor({3, 1, 1}), at::Tensor()};
  const auto function = [&](const Tensors& given) { return mixed(given, weight); };
  const Tensors y = with_checkpoint ? checkpoint(function, inputs) : function(inputs);
  EXPECT_FALSE(y[1].defined());
  EXPECT_FALSE(y[3].requires_grad());
  (y[0].sum() + (y[2] * y[2]).sum() + y[5].square().sum() + y[6].sum()).backward();
  return {y[0].detach(), y[2].detach(), y[3], y[4].detach(), y[5].detach(), x.grad(), weight.grad()};
}

TEST(Checkpoint, TakesAndGivesAnyTensors) { expect_same(run_mixed(false), run_mixed(true)); }

TEST(Checkpoint, Nests) {
  const auto run = [](bool with_checkpoint) {
    torch::manual_seed(3);
    const at::Tensor x = torch::randn({8, 8}, torch::requires_grad());
    const at::Tensor w = torch::randn({8, 8}, torch::requires_grad());
    const TensorFunction inner = [&](const at::Tensor& h) { return at::dropout(h.mm(w), 0.5, true).tanh(); };
    const TensorFunction middle = [&](const at::Tensor& h) {
      const at::Tensor once = with_checkpoint ? checkpoint(inner, h) : inner(h);
      return at::dropout(with_checkpoint ? checkpoint(inner, once) : inner(once), 0.2, true);
    };
    (with_checkpoint ? checkpoint(middle, x) : middle(x)).square().sum().backward();
    return Tensors{x.grad(), w.grad(), generator_state(at::kCPU)};
  };
  expect_same(run(false), run(true));
}

TEST(Checkpoint, RunsAgainUnderTheSameAutocast) {
  const auto run = [](bool with_checkpoint) {
    torch::manual_seed(4);
    const at::Tensor x = torch::randn({8, 8}, torch::requires_grad());
    const at::Tensor v = torch::randn({8, 8}, torch::requires_grad());
    const at::Tensor w = torch::randn({8, 8}, torch::requires_grad());
    at::Tensor y;
    {
      const test::Autocast autocast;
      const TensorFunction function = [&](const at::Tensor& h) { return h.mm(w).tanh().mm(v); };
      y = with_checkpoint ? checkpoint(function, x) : function(x);
      EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    }
    y.to(at::kFloat).square().sum().backward();
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
    return Tensors{y.detach(), x.grad(), v.grad(), w.grad()};
  };
  expect_same(run(false), run(true));
}

// Autocast keeps casts of weights for later calls. If such a call is outside of the checkpoint, its cast needs a
// gradient.
TEST(Checkpoint, KeepsNoCastWithoutGradient) {
  const at::Tensor x = torch::randn({8, 8});
  const at::Tensor w = torch::randn({8, 8}, torch::requires_grad());
  const test::Autocast autocast;
  (void)checkpoint([&](const at::Tensor& h) { return h.mm(w); }, x);
  EXPECT_TRUE(x.mm(w).requires_grad());
}

TEST(Checkpoint, GivesParametersTheirGradientsWhereNoInputRequiresOne) {
  const at::Tensor x = torch::ones({3});
  const at::Tensor w = torch::ones({3}, torch::requires_grad());
  checkpoint([&](const at::Tensor& h) { return h * w * 5; }, x).sum().backward();
  expect_same({torch::full({3}, 5.0)}, {w.grad()});
  EXPECT_FALSE(x.grad().defined());
}

TEST(Checkpoint, ReadsBuffersAsTheFirstRunFoundThem) {
  const at::Tensor counter = torch::zeros({1});
  const at::Tensor w = torch::ones({1}, torch::requires_grad());
  const TensorFunction count = [&](const at::Tensor& h) { return h * w * counter.add_(1).clone(); };
  const at::Tensor first = checkpoint(count, torch::ones({1}), {.buffers = {counter}});
  const at::Tensor second = checkpoint(count, torch::ones({1}), {.buffers = {counter}});
  second.backward();
  EXPECT_EQ(w.grad().item<float>(), 2);
  first.backward();
  EXPECT_EQ(w.grad().item<float>(), 3);
  EXPECT_EQ(counter.item<float>(), 2);
}

TEST(Checkpoint, LeavesGeneratorAndBuffersWhenTheSecondRunThrows) {
  const at::Tensor x = torch::ones({4}, torch::requires_grad());
  const at::Tensor buffer = torch::zeros({1});
  int runs = 0;
  const TensorFunction function = [&](const at::Tensor& h) {
    buffer.add_(1);
    const at::Tensor y = at::dropout(h, 0.5, true);
    if (++runs == 2) throw std::runtime_error("the second run");
    return y;
  };
  const at::Tensor y = checkpoint(function, x, {.buffers = {buffer}});
  const at::Tensor state = generator_state(at::kCPU);
  EXPECT_THROW(y.sum().backward(), std::runtime_error);
  EXPECT_TRUE(at::equal(state, generator_state(at::kCPU)));
  EXPECT_EQ(buffer.item<float>(), 1);
}

TEST(Checkpoint, RunsOnceWithoutGradientsAndWithoutOutputs) {
  int runs = 0;
  const TensorsFunction nothing = [&](const Tensors&) { return ++runs, Tensors(); };
  EXPECT_TRUE(checkpoint(nothing, {torch::ones({1})}).empty());
  EXPECT_TRUE(checkpoint(nothing, Tensors()).empty());
  EXPECT_EQ(runs, 2);
  const torch::NoGradGuard no_grad;
  const at::Tensor w = torch::ones({1}, torch::requires_grad());
  EXPECT_FALSE(checkpoint([&](const at::Tensor& h) { return ++runs, h * w; }, w).requires_grad());
  EXPECT_EQ(runs, 3);
}

TEST(Checkpoint, RefusesInputsThatChange) {
  const at::Tensor x = torch::ones({4}, torch::requires_grad()) * 1;
  const std::string wrote = input_error([&] { (void)checkpoint([](at::Tensor h) { return h.relu_(); }, x); });
  EXPECT_NE(wrote.find("wrote to its input 0"), std::string::npos) << wrote;
  const at::Tensor y = checkpoint([](const at::Tensor& h) { return h.exp(); }, x);
  x.add_(1);
  EXPECT_THROW(y.sum().backward(), c10::Error);  // libtorch's own version counter finds it.
}

TEST(Checkpoint, RefusesAFunctionThatDoesOtherwiseTheSecondTime) {
  int runs = 0;
  const TensorsFunction function = [&](const Tensors& given) { return Tensors(++runs == 1 ? 2 : 3, given[0] * 2); };
  const Tensors y = checkpoint(function, {torch::ones({1}, torch::requires_grad())});
  EXPECT_NE(input_error([&] { y[0].backward(); }).find("2 outputs and then 3"), std::string::npos);
  EXPECT_EQ(input_error([] { (void)checkpoint(TensorsFunction(), Tensors()); }), "checkpoint() got an empty function");
}

TEST(Checkpoint, SaysWhichBackwardPassesItHasNot) {
  const at::Tensor x = torch::ones({1}, torch::requires_grad());
  const at::Tensor y = checkpoint([](const at::Tensor& h) { return h * h; }, x);
  EXPECT_NE(input_error([&] { (void)torch::autograd::grad({y}, {x}, {}, true); }).find("autograd::grad()"),
            std::string::npos);
  EXPECT_NE(input_error([&] { y.backward({}, true, /*create_graph=*/true); }).find("second derivative"),
            std::string::npos);
  y.backward({}, /*retain_graph=*/true);
  y.backward();
  EXPECT_EQ(x.grad().item<float>(), 4);
  EXPECT_NE(input_error([&] { y.backward(); }).find("retain_graph"), std::string::npos);
}

}  // namespace
}  // namespace reprise
