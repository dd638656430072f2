// Random chains of calls in slices, compared with the whole step bit for bit.
//
// Each trial makes a network of a few layers of random kinds, of odd sizes and strides, captures its training step,
// cuts it into a random number of slices and runs both programs under several plans.
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>

#include "reprise/solve.h"
#include "reprise/torch/errors.h"
#include "reprise/validate.h"
#include "runtime/costs/slice_check.h"
#include "runtime/program/program_check.h"
#include "runtime/program/program_queries.h"
#include "runtime/record/capture_step.h"
#include "runtime/session/session.h"
#include "runtime/training.h"
#include "support/small_tests.h"

namespace reprise::test {
namespace {

class Dice {
 public:
  explicit Dice(std::uint32_t seed) : random_(seed) {}
  std::int64_t pick(std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random_);
  }
  bool chance(int percent) { return pick(0, 99) < percent; }

 private:
  std::mt19937 random_;
};

// A network of layers over [outer, rows, width], and the names of what was chosen.
struct RandomChainImpl : nn::Module {
  explicit RandomChainImpl(Dice& dice) : outer(dice.pick(1, 4)), rows(dice.pick(2, 40)), width(dice.pick(3, 40)) {
    first_width = width;
    is_turned = dice.chance(30);
    add_product(dice.pick(5, 200), "first");  // so that there is a parameter
    const std::int64_t count = dice.pick(2, 7);
    for (std::int64_t i = 0; i < count; ++i) add_layer(dice, std::to_string(i));
    ends_in_labels = dice.chance(50);
    if (ends_in_labels) add_product(dice.pick(100, 300), "labels");
    is_mean = dice.chance(50);
  }

  at::Tensor forward(at::Tensor x, const at::Tensor& labels) {
    if (is_turned) x = x.transpose(0, 1);  // memory in another order than that of rows
    for (const auto& layer : layers) x = layer(x);
    if (!ends_in_labels) return is_mean ? x.square().mean() : x.square().sum();
    auto options = F::CrossEntropyFuncOptions().ignore_index(0);
    if (!is_mean) options.reduction(torch::kSum);
    return F::cross_entropy(x.reshape({-1, width}), labels, options);
  }

  // What the network reads: a part of a larger tensor, so that its rows are not one after the other.
  [[nodiscard]] Batch batch(std::int64_t seed) const {
    torch::manual_seed(seed);
    at::Tensor x =
        is_turned ? torch::randn({rows, outer, first_width + 3}) : torch::randn({outer, rows, first_width + 3});
    const at::Tensor labels = torch::randint(0, ends_in_labels ? width : 2, {outer * rows});
    return {x.narrow(2, 1, first_width), labels};
  }

  std::int64_t outer, rows, width, first_width = 0;  // the width so far, and that of the input
  bool is_turned = false, ends_in_labels = false, is_mean = false;
  std::string names;
  std::vector<std::function<at::Tensor(const at::Tensor&)>> layers;

 private:
  at::Tensor weight(const std::string& name, std::vector<std::int64_t> sizes) {
    return register_parameter(name, torch::randn(sizes) / 3);
  }

  void add(const std::string& name, std::function<at::Tensor(const at::Tensor&)> layer) {
    names += name + " ";
    layers.push_back(std::move(layer));
  }

  void add_product(std::int64_t to, const std::string& number) {
    const at::Tensor matrix = weight("product" + number, {to, width});
    width = to;
    add("linear", [matrix](const at::Tensor& x) { return F::linear(x, matrix); });
  }

  void add_layer(Dice& dice, const std::string& number) {
    switch (dice.pick(0, 11)) {
      case 0:
        return add("gelu", [](const at::Tensor& x) { return torch::gelu(x); });
      case 1:
        return add("tanh", [](const at::Tensor& x) { return x.tanh(); });
      case 2:
        return add("silu", [](const at::Tensor& x) { return torch::silu(x) + x; });
      case 3:
        return add("softmax", [](const at::Tensor& x) { return x.softmax(-1); });
      case 4:
        return add("log_softmax", [](const at::Tensor& x) { return x.log_softmax(-1); });
      case 5: {
        const at::Tensor factor = weight("factor" + number, {width});
        return add("mul", [factor](const at::Tensor& x) { return x * factor; });
      }
      case 6: {
        const at::Tensor shift = weight("shift" + number, {width});
        const std::int64_t size = width;
        return add("layer_norm", [shift, size](const at::Tensor& x) {
          return F::layer_norm(x, F::LayerNormFuncOptions({size}).weight(shift).bias(shift));
        });
      }
      case 7:
        return add("to double", [](const at::Tensor& x) { return x.to(at::kDouble).sigmoid().to(at::kFloat); });
      case 8:
        return add("to bfloat16", [](const at::Tensor& x) { return x.to(at::kBFloat16).relu().to(at::kFloat); });
      case 9:
        return add("dropout", [](const at::Tensor& x) { return torch::dropout(x, 0.3, /*train=*/true); });
      case 10: {
        const std::int64_t of_rows = rows;
        return add("views", [of_rows](const at::Tensor& x) {
          const at::Tensor flat = x.reshape({-1, x.size(-1)}).cos();
          return flat.view({-1, of_rows, flat.size(-1)});
        });
      }
      default:
        return add_product(dice.pick(5, 200), number);
    }
  }
};

struct Trial {
  std::shared_ptr<RandomChainImpl> net;
  ModuleState state;
  LossFunction loss;
  StepProgram whole;
  std::optional<SlicedProgram> sliced;
  std::string text;  // for whoever looks at a failure
};

Trial make_trial(std::uint32_t seed) {
  Dice dice(seed);
  torch::manual_seed(seed);
  Trial trial{.net = std::make_shared<RandomChainImpl>(dice)};
  const auto net = trial.net;
  trial.state = state_of(*net);
  trial.loss = [net](const Batch& batch) { return net->forward(batch[0], batch[1]); };
  trial.whole = capture_step("chain", trial.state, trial.loss, net->batch(1));
  const std::int64_t slices = dice.pick(2, 9);
  trial.sliced = slice_exactly(*trial.whole.program, slices);
  trial.text = "seed " + std::to_string(seed) + ": " + net->names + "of " + std::to_string(net->outer) + " x " +
               std::to_string(net->rows) + " x " + std::to_string(net->first_width) + " in " + std::to_string(slices);
  if (trial.sliced) trial.text += ", cut: " + words_of(*trial.sliced->whole, trial.sliced->chain);
  return trial;
}

// The loss, all gradients, and where the generator is after a step.
using Results = std::vector<at::Tensor>;

// Which tensors differ, and by how much at most; nothing if all have the same bits.
std::string difference(const Results& found, const Results& expected) {
  std::string text;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (same_bits(found[i], expected[i])) continue;
    text += "tensor " + std::to_string(i) + " by " +
            std::to_string((found[i] - expected[i]).abs().max().item<double>()) + "; ";
  }
  return text;
}

template <typename Forward>
Results results_of(const Trial& trial, const Forward& run) {
  Results results;
  trial.net->zero_grad();
  const Batch batch = trial.net->batch(5);
  torch::manual_seed(17);
  results.push_back(run(batch).detach().clone());
  for (const at::Tensor& parameter : trial.net->parameters()) results.push_back(parameter.grad());
  results.push_back(torch::rand({3}));
  for (at::Tensor& tensor : results) tensor = tensor.defined() ? tensor.clone() : tensor;
  trial.net->zero_grad();
  return results;
}

Results eagerly(const Trial& trial) {
  return results_of(trial, [&](const Batch& batch) {
    at::Tensor loss = trial.loss(batch);
    loss.backward();
    return loss;
  });
}

// By an executor of the program that `step` has, under a plan.
Results under(const Trial& trial, const StepProgram& step, const Plan& plan) {
  const Executor executor(step.program, plan);
  return results_of(trial, [&](const Batch& batch) {
    StepState running;
    const auto outputs = executor.forward(arguments_of(step, trial.state.tensors, batch), running);
    at::Tensor loss = outputs.front()->clone();
    add_gradients(step, executor.backward(loss_seeds(*step.program), running), trial.state.tensors);
    return loss;
  });
}

Plan least_plan(const Program& program) {
  const Graph graph = make_graph(program);
  const Costs costs = bare_costs(program);
  const std::int64_t least = solve(graph, costs, {.budget_bytes = 1}).smallest_budget_bytes;
  return solve(graph, costs, {.budget_bytes = least}).plan;
}

Plan plain_plan(const Program& program) {
  return solve(make_graph(program), bare_costs(program), {.planner = "none"}).plan;
}

TEST(RandomSlices, HaveTheBitsOfTheWholeStep) {
  if (!test_device().is_cpu()) GTEST_SKIP() << "other devices are compared call by call";
  int cut = 0;
  int calls = 0;
  for (std::uint32_t seed = 0; seed < fewer(90U); ++seed) {
    const Trial trial = make_trial(seed);
    if (!trial.sliced) continue;
    SCOPED_TRACE(trial.text);
    ++cut;
    calls += static_cast<int>(trial.sliced->chain.ops.size());
    StepProgram step = trial.whole;
    step.program = trial.sliced->program;
    detail::check_program(step, "sliced");
    const Results expected = under(trial, trial.whole, plain_plan(*trial.whole.program));
    EXPECT_EQ(difference(expected, eagerly(trial)), "") << "before slicing";
    std::vector<Plan> plans{plain_plan(*step.program)};
    if (cut % 4 == 0) plans.push_back(least_plan(*step.program));  // which takes long to find
    for (const Plan& plan : plans) {
      const auto wrong = validate(make_graph(*step.program), plan);
      EXPECT_FALSE(wrong) << wrong->message;
      EXPECT_EQ(difference(under(trial, step, plan), expected), "");
    }
  }
  EXPECT_GT(cut, fewer(45));  // otherwise the trials say nothing
  EXPECT_GT(calls, 3 * cut);  // chains are of several calls
}

TEST(RandomSlices, TakeWhatIsPredicted) {
  if (!test_device().is_cpu()) GTEST_SKIP() << "other devices are compared call by call";
  int cut = 0;
  for (std::uint32_t seed = 200; seed < 216; ++seed) {
    const Trial trial = make_trial(seed);
    if (!trial.sliced) continue;
    SCOPED_TRACE(trial.text);
    ++cut;
    const Batch batch = trial.net->batch(5);
    StepProgram step = trial.whole;
    step.program = trial.sliced->program;
    const auto arguments = arguments_of(step, trial.state.tensors, batch);
    auto options = std::make_shared<SessionOptions>();
    options->planning_seconds = 0.2;
    Session session(CapturedStep{.program = step.program, .alike = trial.sliced->alike}, options,
                    {.caller_is_user = false});
    const auto run = [&] {
      RunningStep running;
      (void)session.forward(arguments, running);
      (void)session.backward(loss_seeds(*step.program), running);
      EXPECT_EQ(session.measured_peak_bytes(), session.current()->peak_bytes());
    };
    run();
    run();
    options->slices = UseSlices::kOff;  // they are there already
    options->budget_bytes = 1;
    try {
      run();
      FAIL() << "one byte is not enough";
    } catch (const InfeasibleBudget& refusal) {
      options->budget_bytes = refusal.smallest_budget_bytes();
    }
    run();
    EXPECT_LE(session.measured_peak_bytes(), options->budget_bytes);
  }
  EXPECT_GT(cut, 8);
}

}  // namespace
}  // namespace reprise::test
