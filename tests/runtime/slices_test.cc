// Chains that run slice by slice: which calls can be cut, that their bits are those of the whole, and what steps take.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "reprise/solve.h"
#include "reprise/torch/errors.h"
#include "runtime/costs/slice_check.h"
#include "runtime/program/program_check.h"
#include "runtime/program/program_queries.h"
#include "runtime/program/slices/cut.h"
#include "runtime/program/slices/rules.h"
#include "runtime/program/slices/slice_program.h"
#include "runtime/program/tensor_memory.h"
#include "runtime/record/capture_step.h"
#include "runtime/session/session.h"
#include "runtime/training.h"

namespace reprise::test {
namespace {

// -- Single calls.

// A program of one call, as eager runs it.
struct OneCall {
  std::shared_ptr<Program> program = std::make_shared<Program>();

  OneCall(const std::string& name, const std::vector<c10::IValue>& arguments) {
    program->device = test_device();
    ProgramOp op;
    op.name = name;
    op.call = Call{find_operator(name).value(), {}};
    for (const c10::IValue& argument : arguments) {
      if (!argument.isTensor() || argument.toTensor().unsafeGetTensorImpl()->is_wrapped_number()) {
        op.call->arguments.push_back({.constant = argument});
        continue;
      }
      const ValueId value = add_value(argument.toTensor(), Residence::kResident);
      const TensorUse use{value, geometry_of(argument.toTensor())};
      program->inputs.emplace_back(use);
      op.call->arguments.push_back({.kind = Argument::Kind::kTensor, .tensors = {use}});
    }
    std::vector<c10::IValue> stack = arguments;
    op.call->op.callBoxed(stack);
    for (const at::Tensor& result : tensors_of(stack)) {
      if (!result.defined()) {
        op.outputs.emplace_back(std::nullopt);
        continue;
      }
      op.outputs.emplace_back(TensorUse{add_value(result, Residence::kPlanned), geometry_of(result)});
    }
    program->ops.push_back(std::move(op));
  }

  // Its call as a chain with the results as its ends.
  [[nodiscard]] Chain chain(std::int64_t units) const {
    Chain all{.units = units, .ops = {op_id(0)}};
    for (const ValueId value : makes(program->ops.front())) all.ends.insert(value);
    return all;
  }
  [[nodiscard]] bool can_be_cut(std::int64_t units) const {
    return slice_rule(program->ops.front(), units, Sums::kWhole).has_value();
  }
  [[nodiscard]] std::set<OpId> differing(std::int64_t units, std::int64_t slices) const {
    return differing_calls(slice_program(program, chain(units), slices).value());
  }

 private:
  ValueId add_value(const at::Tensor& tensor, Residence residence) const {
    program->values.push_back({.bytes = static_cast<std::int64_t>(tensor.storage().nbytes()), .residence = residence});
    return value_id(program->values.size() - 1);
  }
};

at::Tensor numbers(std::vector<std::int64_t> sizes, at::ScalarType dtype = at::kFloat) {
  return torch::randn(sizes, torch::TensorOptions().device(test_device())).to(dtype);
}
at::Tensor labels(std::int64_t count, std::int64_t below) {
  return torch::randint(0, below, {count}, torch::TensorOptions(at::kLong).device(test_device()));
}
c10::IValue integers(std::initializer_list<std::int64_t> list) { return c10::List<std::int64_t>(list); }

// One call of every rule, with `rows` units along [rows, inner] or [outer, rows / outer, inner].
std::vector<OneCall> calls_of_rules(std::int64_t outer, std::int64_t rows, std::int64_t inner, at::ScalarType dtype) {
  const at::Tensor matrix = numbers({rows, inner}, dtype);
  const at::Tensor deep = numbers({outer, rows / outer, inner}, dtype);
  const at::Tensor total = numbers({}, dtype).abs() + 1;
  const std::int64_t outer_dtype = static_cast<std::int64_t>(dtype);
  const c10::IValue none;
  std::vector<OneCall> calls;
  calls.emplace_back("aten::gelu", std::vector<c10::IValue>{deep, std::string("none")});
  calls.emplace_back("aten::mul.Tensor", std::vector<c10::IValue>{deep, numbers({inner}, dtype)});
  calls.emplace_back("aten::add.Tensor", std::vector<c10::IValue>{matrix, numbers({rows, 1}, dtype), 1});
  calls.emplace_back("aten::where.self", std::vector<c10::IValue>{matrix > 0, matrix, numbers({}, dtype)});
  calls.emplace_back("aten::tanh_backward", std::vector<c10::IValue>{deep, numbers(deep.sizes().vec(), dtype)});
  calls.emplace_back("aten::_to_copy", std::vector<c10::IValue>{deep, static_cast<std::int64_t>(at::kDouble), none,
                                                                none, none, false, none});
  calls.emplace_back("aten::clone", std::vector<c10::IValue>{deep, none});
  calls.emplace_back("aten::_softmax", std::vector<c10::IValue>{deep, -1, false});
  calls.emplace_back("aten::_log_softmax", std::vector<c10::IValue>{matrix, 1, false});
  calls.emplace_back("aten::_softmax_backward_data",
                     std::vector<c10::IValue>{matrix, matrix.softmax(1), 1, outer_dtype});
  calls.emplace_back("aten::_log_softmax_backward_data",
                     std::vector<c10::IValue>{deep, deep.log_softmax(2), 2, outer_dtype});
  calls.emplace_back("aten::gather", std::vector<c10::IValue>{matrix, 1, labels(rows, inner).unsqueeze(1), false});
  calls.emplace_back("aten::mm", std::vector<c10::IValue>{matrix, numbers({7, inner}, dtype).t()});
  calls.emplace_back("aten::mm",
                     std::vector<c10::IValue>{numbers({inner, rows}, dtype).t(), numbers({inner, 9}, dtype)});
  calls.emplace_back("aten::addmm",
                     std::vector<c10::IValue>{numbers({9}, dtype), matrix, numbers({inner, 9}, dtype), 1, 1});
  calls.emplace_back("aten::bmm",
                     std::vector<c10::IValue>{numbers({rows, 3, inner}, dtype), numbers({rows, inner, 5}, dtype)});
  calls.emplace_back(
      "aten::native_layer_norm",
      std::vector<c10::IValue>{deep, integers({inner}), numbers({inner}, dtype), numbers({inner}, dtype), 1e-5});
  calls.emplace_back("aten::sum.dim_IntList", std::vector<c10::IValue>{deep, integers({-1}), true, none});
  calls.emplace_back("aten::mean.dim", std::vector<c10::IValue>{matrix, integers({1}), false, none});
  for (const std::int64_t reduction : {1, 2}) {
    calls.emplace_back(
        "aten::nll_loss_backward",
        std::vector<c10::IValue>{numbers({}, dtype), matrix, labels(rows, inner), none, reduction, -100, total});
  }
  return calls;
}

// One call of every rule that takes images one by one.
std::vector<OneCall> calls_on_images(std::int64_t images, std::int64_t size, at::ScalarType dtype) {
  const at::Tensor input = numbers({images, 4, size, size}, dtype);
  const at::Tensor weight = numbers({8, 4, 3, 3}, dtype);
  const at::Tensor result = numbers({images, 8, size, size}, dtype);
  const at::Tensor half = numbers({images, 4, size / 2, size / 2}, dtype);
  const auto pooled = at::max_pool2d_with_indices(input, {2, 2}, {2, 2});
  const c10::IValue none, zero = integers({0, 0}), one = integers({1, 1}), two = integers({2, 2});
  const auto mask = [](bool of_input) { return c10::List<bool>({of_input, !of_input, !of_input}); };
  std::vector<OneCall> calls;
  calls.emplace_back("aten::convolution",
                     std::vector<c10::IValue>{input, weight, numbers({8}, dtype), one, one, one, false, zero, 1});
  calls.emplace_back("aten::convolution_backward",
                     std::vector<c10::IValue>{result, input, weight, none, one, one, one, false, zero, 1, mask(true)});
  calls.emplace_back("aten::max_pool2d_with_indices", std::vector<c10::IValue>{input, two, two, zero, one, false});
  calls.emplace_back("aten::max_pool2d_with_indices_backward",
                     std::vector<c10::IValue>{half, input, two, two, zero, one, false, std::get<1>(pooled)});
  calls.emplace_back("aten::avg_pool2d", std::vector<c10::IValue>{input, two, two, zero, false, true, none});
  calls.emplace_back("aten::avg_pool2d_backward",
                     std::vector<c10::IValue>{half, input, two, two, zero, false, true, none});
  calls.emplace_back("aten::_adaptive_avg_pool2d", std::vector<c10::IValue>{input, integers({3, 3})});
  calls.emplace_back("aten::_adaptive_avg_pool2d_backward",
                     std::vector<c10::IValue>{numbers({images, 4, 3, 3}, dtype), input});
  return calls;
}

TEST(Slices, OfImagesGiveTheBitsOfTheWholeCall) {
  std::mt19937 random(3);
  const auto pick = [&](int from, int to) { return std::uniform_int_distribution<std::int64_t>(from, to)(random); };
  for (int trial = 0; trial < 6; ++trial) {
    torch::manual_seed(trial);
    const std::int64_t images = pick(3, 9);
    for (const OneCall& one : calls_on_images(images, 2 * pick(2, 9), at::kDouble)) {
      const std::string& name = one.program->ops.front().name;
      ASSERT_TRUE(one.can_be_cut(images)) << name;
      EXPECT_FALSE(one.can_be_cut(images * 4)) << name;  // channels depend on one another, or are not looked at
      if (!test_device().is_cpu() && name.find("convolution") != std::string::npos) continue;
      EXPECT_TRUE(one.differing(images, pick(2, 3)).empty()) << name << " of " << images;
    }
  }
}

TEST(Slices, OfEveryRuleGiveTheBitsOfTheWholeCall) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 6; ++trial) {
    torch::manual_seed(trial);
    const auto pick = [&](int from, int to) { return std::uniform_int_distribution<std::int64_t>(from, to)(random); };
    // Libraries treat what is left over after blocks of their own size differently: those are compared below.
    const std::int64_t outer = pick(1, 4);
    const std::int64_t rows = outer * 64 * pick(1, 3);
    const std::int64_t inner = 64 * pick(1, 3);
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
      for (const OneCall& one : calls_of_rules(outer, rows, inner, dtype)) {
        const std::string& name = one.program->ops.front().name;
        ASSERT_TRUE(one.can_be_cut(rows)) << name << " " << outer << " " << rows << " " << inner;
        const std::int64_t slices = pick(2, 4);
        if (dtype == at::kBFloat16 && name.find("mm") != std::string::npos) continue;  // products may round otherwise
        EXPECT_TRUE(one.differing(rows, slices).empty())
            << name << " of " << rows << " x " << inner << " in " << slices << ", " << c10::toString(dtype);
      }
    }
  }
}

// The shapes leave remainders.
TEST(Slices, OfOddShapesGiveTheBitsOfTheWholeCall) {
  std::mt19937 random(2);
  const auto pick = [&](int from, int to) { return std::uniform_int_distribution<std::int64_t>(from, to)(random); };
  for (int trial = 0; trial < 6; ++trial) {
    torch::manual_seed(trial);
    const std::int64_t outer = pick(1, 4);
    const std::int64_t rows = outer * pick(2, 20);
    const std::int64_t inner = pick(2, 30);
    for (const OneCall& one : calls_of_rules(outer, rows, inner, at::kDouble)) {
      const std::string& name = one.program->ops.front().name;
      ASSERT_TRUE(one.can_be_cut(rows)) << name;
      if (name == "aten::gelu" || name.find("mm") != std::string::npos)
        continue;  // they may differ in what is left over
      EXPECT_TRUE(one.differing(rows, pick(2, static_cast<int>(std::min<std::int64_t>(rows, 6)))).empty()) << name;
    }
  }
}

TEST(Slices, AreRefusedWhereUnitsDependOnOneAnother) {
  const at::Tensor matrix = numbers({12, 8});
  const c10::IValue none;
  const auto refused = [](const std::string& name, const std::vector<c10::IValue>& arguments) {
    return !OneCall(name, arguments).can_be_cut(12);
  };
  EXPECT_TRUE(refused("aten::_softmax", {matrix, 0, false}));
  EXPECT_TRUE(refused("aten::cumsum", {matrix, 0, none}));
  EXPECT_TRUE(refused("aten::sort", {matrix, 0, false}));
  EXPECT_TRUE(refused("aten::mm", {matrix.t(), matrix}));
  EXPECT_TRUE(refused("aten::sum.dim_IntList", {numbers({12, 12, 3}), integers({0}), false, none}));
  EXPECT_TRUE(refused("aten::mul.Tensor", {numbers({3, 12}).t(), numbers({12, 3})}));  // its result is not dense
  EXPECT_TRUE(refused("aten::native_layer_norm", {numbers({4, 3, 8}), integers({3, 8}), none, none, 1e-5}));
  EXPECT_TRUE(refused("aten::nll_loss_forward", {matrix, labels(12, 8), none, 1, -100}));
  // Twelve images, and a gradient of twelve rows that is a sum over them.
  const c10::IValue one = integers({1, 1}), zero = integers({0, 0});
  const auto mask = [](bool input, bool weight) { return c10::List<bool>({input, weight, false}); };
  const std::vector<c10::IValue> gradients{
      numbers({12, 12, 6, 6}), numbers({12, 4, 6, 6}), numbers({12, 4, 3, 3}), none, one, one, one, false, zero, 1,
      mask(false, true)};
  EXPECT_TRUE(refused("aten::convolution_backward", gradients));
  auto both = gradients;
  both.back() = mask(true, true);
  EXPECT_TRUE(refused("aten::convolution_backward", both));
  both.back() = mask(true, false);
  EXPECT_FALSE(refused("aten::convolution_backward", both));
  EXPECT_FALSE(refused("aten::mm", {matrix, matrix.t()}));
}

TEST(Slices, WithWrongNumbersAreNoticed) {
  const OneCall one("aten::mul.Tensor", {numbers({12, 8}), numbers({12, 8})});
  SlicedProgram sliced = slice_program(one.program, one.chain(12), 3).value();
  EXPECT_TRUE(differing_calls(sliced).empty());
  ProgramOp& last = sliced.program->ops.back();
  last.call->arguments[0].tensors.front()->geometry.offset -= 8;  // one row too early
  EXPECT_EQ(differing_calls(sliced), std::set<OpId>{op_id(0)});
}

TEST(Slices, AreRangesOfUnits) {
  const Geometry deep{.dtype = at::kFloat, .sizes = {4, 32, 10}, .strides = {320, 10, 1}};
  const CutPlace rows = cut_place(deep, 128).value();
  EXPECT_EQ(rows, (CutPlace{1, 1}));
  const Geometry part = cut(deep, rows, 40, 60);
  EXPECT_EQ(part.sizes, (std::vector<std::int64_t>{1, 20, 10}));
  EXPECT_EQ(part.offset, 400);
  EXPECT_EQ(cut(deep, cut_place(deep, 4).value(), 1, 3).sizes, (std::vector<std::int64_t>{2, 32, 10}));
  EXPECT_FALSE(cut_place(deep, 3).has_value());
  Geometry apart = deep;
  apart.strides = {330, 10, 1};
  EXPECT_FALSE(cut_place(apart, 128).has_value());  // the rows of all four are not one after the other
  EXPECT_TRUE(cut_place(apart, 4).has_value());
  const Geometry flat{.dtype = at::kFloat, .sizes = {128, 10}, .strides = {10, 1}};
  EXPECT_TRUE(follows_units(deep, flat, 128));
  Geometry turned{.dtype = at::kFloat, .sizes = {10, 128}, .strides = {1, 10}};
  EXPECT_FALSE(follows_units(flat, turned, 128));
  EXPECT_FALSE(follows_units(flat, turned, 10));
}

// -- Steps.

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

TEST(Slices, AddUpOnlyWhereTheyMay) {
  const OneCall one("aten::mm", {numbers({12, 8}).t(), numbers({12, 5})});
  EXPECT_FALSE(slice_rule(one.program->ops.front(), 12, Sums::kWhole).has_value());
  EXPECT_TRUE(slice_rule(one.program->ops.front(), 12, Sums::kInSlices).has_value());
  const OneCall rows("aten::sum.dim_IntList", {numbers({4, 3, 5}), integers({0, 1}), false, c10::IValue()});
  EXPECT_TRUE(slice_rule(rows.program->ops.front(), 12, Sums::kInSlices).has_value());
  const OneCall inner("aten::sum.dim_IntList", {numbers({4, 3, 5}), integers({1, 2}), false, c10::IValue()});
  EXPECT_FALSE(slice_rule(inner.program->ops.front(), 12, Sums::kInSlices).has_value());
}

}  // namespace
}  // namespace reprise::test
