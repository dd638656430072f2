// Chains that run slice by slice: that steps have the bits of the whole, and what they take.
#include <gtest/gtest.h>

#include <string>

#include "reprise/solve.h"
#include "reprise/torch/errors.h"
#include "runtime/costs/slice_check.h"
#include "runtime/program/program_check.h"
#include "runtime/program/program_queries.h"
#include "runtime/program/slices/slice_program.h"
#include "runtime/record/capture_step.h"
#include "runtime/session/session.h"
#include "runtime/training.h"

namespace reprise::test {
namespace {

// Words in, the next word out, with many words.
struct LanguageImpl : nn::Module {
  LanguageImpl() {
    register_module("embed", embed);
    register_module("layer", layer);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& words) { return head(torch::gelu(layer(embed(words)))); }
  nn::Embedding embed{kWords, 32};
  nn::Linear layer{32, 32};
  nn::Linear head{nn::LinearOptions(32, kWords).bias(false)};
  static constexpr std::int64_t kWords = 3001;
};
TORCH_MODULE(Language);

constexpr std::int64_t kRows = 4 * 48;

Case language_case(std::int64_t ignored = -100, bool sum = false, at::ScalarType dtype = at::kFloat) {
  torch::manual_seed(0);
  Language net;
  net->to(test_device(), dtype);
  return {.module = net.ptr(),
          .loss =
              [net, ignored, sum](const Batch& batch) mutable {
                auto options = F::CrossEntropyFuncOptions().ignore_index(ignored);
                if (sum) options.reduction(torch::kSum);
                const at::Tensor logits = net(batch[0]).view({-1, LanguageImpl::kWords});
                return F::cross_entropy(logits, batch[1].view(-1), options);
              },
          .batch =
              [ignored](std::int64_t seed) {
                torch::manual_seed(seed);
                const at::Tensor words = torch::randint(0, LanguageImpl::kWords, {4, 49});
                at::Tensor next = words.slice(1, 1).contiguous();
                next.masked_fill_(torch::rand({4, 48}) < 0.1, ignored);
                return Batch{words.slice(1, 0, 48).contiguous().to(test_device()), next.to(test_device())};
              }};
}

std::size_t count(const Program& program, const std::string& name) {
  return static_cast<std::size_t>(std::ranges::count_if(
      program.ops, [&](const ProgramOp& op) { return op.call && op.call->op.operator_name().name == name; }));
}

TEST(Slices, CutTheLossOverManyWords) {
  const Case network = language_case();
  StepProgram step = capture_step("language", state_of(*network.module), network.loss, network.batch(1));
  const SlicedProgram sliced = slice_exactly(*step.program, 4).value();
  EXPECT_EQ(sliced.chain.units, kRows);
  EXPECT_EQ(sliced.slices, 4);
  EXPECT_EQ(count(*sliced.program, "aten::_log_softmax"), 4U);
  EXPECT_EQ(count(*sliced.program, "aten::nll_loss_forward"), 1U);  // of the rows that were kept
  std::string members;
  for (const OpId op : sliced.chain.ops) members += sliced.whole->ops[index(op)].name + " ";
  EXPECT_EQ(members, "mm_1 _log_softmax nll_loss_forward_kept nll_loss_backward _log_softmax_backward_data ");
  EXPECT_EQ(sliced.chain.ends.size(), 2U);  // those, and the gradient of the logits
  step.program = sliced.program;
  detail::check_program(step, "sliced");
  const std::int64_t logits = kRows * LanguageImpl::kWords * 4;
  EXPECT_GE(sliced.chain.inside_bytes, 3 * logits);
}

// Steps of a session of its own under each of several budgets, compared with eager.
void expect_steps_as_eager(const Case& network, std::int64_t slices) {
  const ModuleState state = state_of(*network.module);
  StepProgram step = capture_step("language", state, network.loss, network.batch(1));
  const std::int64_t whole_least =
      solve(make_graph(*step.program), bare_costs(*step.program), {.budget_bytes = 1}).smallest_budget_bytes;
  const SlicedProgram sliced = slice_exactly(*step.program, slices).value();
  step.program = sliced.program;
  check_step(step, state, network.loss, network.batch(1));

  const Graph graph = make_graph(*step.program);
  const std::int64_t least = solve(graph, bare_costs(*step.program), {.budget_bytes = 1}).smallest_budget_bytes;
  EXPECT_LT(least, whole_least);
  const Batch batch = network.batch(7);
  const at::Tensor loss = network.loss(batch).detach();
  network.loss(batch).backward();
  std::vector<at::Tensor> expected;
  for (const at::Tensor& parameter : network.module->parameters()) expected.push_back(parameter.grad().clone());
  network.module->zero_grad();
  const auto arguments = arguments_of(step, state.tensors, batch);
  auto options = std::make_shared<SessionOptions>();
  options->planning_seconds = 1;
  options->measure = false;
  Session session(CapturedStep{.program = step.program}, options, {.caller_is_user = false});
  const auto run = [&] {
    RunningStep running;
    const auto outputs = session.forward(arguments, running);
    EXPECT_TRUE(same_bits(**outputs.begin(), loss));
    add_gradients(step, session.backward(loss_seeds(*step.program), running), state.tensors);
    const auto parameters = network.module->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) EXPECT_TRUE(same_bits(parameters[i].grad(), expected[i])) << i;
    EXPECT_EQ(session.measured_peak_bytes(), session.current()->peak_bytes());
    network.module->zero_grad();
  };
  run();
  EXPECT_EQ(session.current()->found.simulation.recompute_ns, 0);
  options->budget_bytes = 1;
  try {
    run();
    FAIL() << "one byte is not enough";
  } catch (const InfeasibleBudget& refusal) {
    options->budget_bytes = refusal.smallest_budget_bytes();
  }
  run();
  EXPECT_GT(session.current()->found.simulation.recompute_ns, 0);
}

TEST(Slices, OfALossStepAsEager) {
  if (!test_device().is_cpu()) GTEST_SKIP() << "other devices are compared call by call";
  expect_steps_as_eager(language_case(), 4);
}
TEST(Slices, OfALossWithARemainderStepAsEager) {
  if (!test_device().is_cpu()) GTEST_SKIP() << "other devices are compared call by call";
  expect_steps_as_eager(language_case(/*ignored=*/0), 5);
}
TEST(Slices, OfASummedLossStepAsEager) {
  if (!test_device().is_cpu()) GTEST_SKIP() << "other devices are compared call by call";
  expect_steps_as_eager(language_case(/*ignored=*/2, /*sum=*/true), 7);
}

// -- Sessions.

TEST(Slices, KeepABudgetThatTheWholeStepCannot) {
  const Case network = language_case();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  const StepAnswer whole = step.try_plan({.budget_bytes = 1, .planning_seconds = 1, .slices = UseSlices::kOff});
  const StepAnswer sliced = step.try_plan({.budget_bytes = 1, .planning_seconds = 1});
  EXPECT_LT(sliced.smallest_budget_bytes, whole.smallest_budget_bytes);
  const std::int64_t budget = (sliced.smallest_budget_bytes + whole.smallest_budget_bytes) / 2;
  EXPECT_EQ(step.try_plan({.budget_bytes = budget, .planning_seconds = 1, .slices = UseSlices::kOff}).status,
            Status::kInfeasible);
  const StepSummary planned = step.plan({.budget_bytes = budget, .planning_seconds = 1});
  EXPECT_GT(planned.slices, 1);
  EXPECT_LE(planned.peak_bytes, budget);
  EXPECT_EQ(step.plan({}).slices, 1);  // Without a budget the step is whole again.
}

TEST(Slices, TrainAsEagerInsideABudget) {
  if (!test_device().is_cpu()) GTEST_SKIP() << "other devices are compared call by call";
  const Case plain = language_case();
  const Case network = language_case();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
  // With its optimizer's state and its gradients, which a step adds to.
  const auto smallest = step.try_plan({.budget_bytes = 1, .planning_seconds = 1}).smallest_budget_bytes;
  std::int64_t parameters = 0;
  for (const at::Tensor& parameter : network.module->parameters())
    parameters += static_cast<std::int64_t>(parameter.nbytes());
  step.plan({.budget_bytes = smallest + 3 * parameters, .planning_seconds = 1});
  const Trained expected = train(plain, plainly(plain), sgd);
  int sliced = 0;
  const RunStep run = [&](const Batch& batch) {
    at::Tensor loss = step.run(batch);
    EXPECT_EQ(step.measured_peak_bytes(), step.summary().peak_bytes);
    sliced += step.summary().slices > 1 ? 1 : 0;
    return loss;
  };
  const Trained trained = train(network, run, sgd);
  EXPECT_GT(sliced, 0);
  expect_same(expected, trained);
}

// -- Close slices.

// Gradients of a step whose sums are added up in slices, and that needs less than its exact form.
void expect_close_gradients(const Case& network, std::int64_t slices, std::size_t sums, std::int64_t spared_bytes,
                            double tolerance) {
  const ModuleState state = state_of(*network.module);
  StepProgram step = capture_step("network", state, network.loss, network.batch(1));
  const SlicedProgram close = slice_closely(*step.program, slices).value();
  EXPECT_EQ(close.chain.sums.size(), sums);
  const auto least = [](const Program& program) {
    return solve(make_graph(program), bare_costs(program), {.budget_bytes = 1}).smallest_budget_bytes;
  };
  const auto exact = slice_exactly(*step.program, slices);
  EXPECT_LE(least(*close.program), least(exact ? *exact->program : *step.program) - spared_bytes);

  const Batch batch = network.batch(7);
  network.loss(batch).backward();
  std::vector<at::Tensor> expected;
  for (const at::Tensor& parameter : network.module->parameters()) expected.push_back(parameter.grad().clone());
  network.module->zero_grad();
  step.program = close.program;
  detail::check_program(step, "close");
  const Graph graph = make_graph(*step.program);
  const Executor executor(step.program, solve(graph, bare_costs(*step.program), {.planner = "none"}).plan);
  StepState running;
  (void)executor.forward(arguments_of(step, state.tensors, batch), running);
  add_gradients(step, executor.backward(loss_seeds(*step.program), running), state.tensors);
  const auto parameters = network.module->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    ASSERT_EQ(parameters[i].grad().scalar_type(), expected[i].scalar_type());
    const double error = ((parameters[i].grad() - expected[i]).abs().max() / expected[i].abs().max()).item<double>();
    EXPECT_LT(error, tolerance) << i;
  }
  network.module->zero_grad();
}

constexpr std::int64_t kLogits = kRows * LanguageImpl::kWords;

TEST(Slices, ThatAddUpAreCloseAndTakeLess) {
  expect_close_gradients(language_case(), 4, /*sums=*/1, kLogits * 2, 2e-6);
}

// In bf16 the sum is in fp32 until it is complete.
TEST(Slices, AddUpInAWideType) {
  const Case network = language_case(-100, /*sum=*/false, at::kBFloat16);
  const ModuleState state = state_of(*network.module);
  const StepProgram step = capture_step("language", state, network.loss, network.batch(1));
  const SlicedProgram close = slice_closely(*step.program, 4).value();
  const auto adds = [](const ProgramOp& op) {
    return op.name.ends_with("_added") || (op.call && op.call->op.operator_name().overload_name == "dtype_out");
  };
  EXPECT_EQ(std::ranges::count_if(close.program->ops, adds), 4);
  const OpId rounding = op_id(static_cast<std::size_t>(
      std::ranges::find_if(close.program->ops, [](const ProgramOp& op) { return op.name.ends_with("_rounded"); }) -
      close.program->ops.begin()));
  const Call& rounded = *close.program->ops.at(index(rounding)).call;
  EXPECT_EQ(rounded.tensor(0)->geometry.dtype, at::kFloat);
  expect_close_gradients(network, 4, /*sums=*/1, 0, 8e-3);
}

// Convolutions, whose weights' gradients are sums over images.
struct ImagesImpl : nn::Module {
  ImagesImpl() {
    register_module("features", features);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& images) { return head(features->forward(images).flatten(1)); }
  nn::Sequential features{nn::Conv2d(nn::Conv2dOptions(3, 16, 3).padding(1)),
                          nn::ReLU(),
                          nn::Conv2d(nn::Conv2dOptions(16, 16, 3).padding(1).bias(false)),
                          nn::ReLU(),
                          nn::MaxPool2d(2),
                          nn::Conv2d(nn::Conv2dOptions(16, 8, 3).padding(1)),
                          nn::AdaptiveAvgPool2d(2)};
  nn::Linear head{32, 5};
};
TORCH_MODULE(Images);

Case images_case() {
  torch::manual_seed(0);
  Images net;
  net->to(test_device());
  return {
      .module = net.ptr(),
      .loss = [net](const Batch& batch) mutable { return F::cross_entropy(net(batch[0]), batch[1]); },
      .batch =
          [](std::int64_t seed) {
            torch::manual_seed(seed);
            return Batch{torch::randn({8, 3, 32, 32}).to(test_device()), torch::randint(0, 5, {8}).to(test_device())};
          }};
}

// The gradient of a convolution's weight reads as much as the convolution itself, and is not cut in exact slices.
TEST(Slices, OfAChainWithoutTheLargestCallAreNotTried) {
  const auto lowers = [](const Case& network, Sums sums) {
    const ModuleState state = state_of(*network.module);
    const StepProgram step = capture_step("network", state, network.loss, network.batch(1));
    const auto whole = prepare_for_slices(*step.program);
    const auto chain = find_chain(*whole, sums);
    return chain && has_the_largest_call(*whole, *chain);
  };
  EXPECT_FALSE(lowers(images_case(), Sums::kWhole));
  EXPECT_TRUE(lowers(images_case(), Sums::kInSlices));
  EXPECT_TRUE(lowers(language_case(), Sums::kWhole));
}

TEST(Slices, OfImagesAddUpGradientsOfWeights) {
  constexpr std::int64_t kLargest = 8 * 16 * 32 * 32 * 4;
  expect_close_gradients(images_case(), 4, /*sums=*/5, kLargest, test_device().is_cpu() ? 2e-5 : 1e-3);
}

}  // namespace
}  // namespace reprise::test
