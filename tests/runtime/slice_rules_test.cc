// Single calls in slices: which can be cut, and that their bits are those of the whole call, for every rule.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>

#include "reprise/torch/errors.h"
#include "runtime/costs/slice_check.h"
#include "runtime/program/program_queries.h"
#include "runtime/program/slices/cut.h"
#include "runtime/program/slices/rules.h"
#include "runtime/program/slices/slice_program.h"
#include "runtime/program/tensor_memory.h"
#include "runtime/training.h"

namespace reprise::test {
namespace {

using ByValue = std::map<ValueId, at::Tensor>;

// A program of one call, as eager runs it.
struct OneCall {
  std::shared_ptr<Program> program = std::make_shared<Program>();
  ByValue given{};

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
      given[value] = argument.toTensor();
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
    const ProgramOp& op = program->ops.front();
    const SliceRule rule = slice_rule(op, units, Sums::kInSlices).value();
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      if (!op.outputs[i]) continue;
      all.ends.insert(op.outputs[i]->value);
      if (rule.results[i] == Made::kSum) all.sums.insert(op.outputs[i]->value);
    }
    return all;
  }
  [[nodiscard]] SlicedProgram sliced(std::int64_t units, std::int64_t slices) const {
    return slice_program(program, chain(units), slices).value();
  }
  [[nodiscard]] bool can_be_cut(std::int64_t units) const {
    return slice_rule(program->ops.front(), units, Sums::kWhole).has_value();
  }
  [[nodiscard]] std::set<OpId> differing(std::int64_t units, std::int64_t slices) const {
    return differing_calls(sliced(units, slices));
  }

 private:
  ValueId add_value(const at::Tensor& tensor, Residence residence) const {
    program->values.push_back({.bytes = static_cast<std::int64_t>(tensor.storage().nbytes()), .residence = residence});
    return value_id(program->values.size() - 1);
  }
};

// The memory of every value after the program's calls, one after the other.
ByValue run_in_order(const Program& program, ByValue memory) {
  for (const ProgramOp& op : program.ops) {
    std::vector<c10::IValue> stack;
    for (const Argument& argument : op.call->arguments) {
      if (argument.tensors.empty()) {
        stack.push_back(argument.constant);
      } else {
        stack.emplace_back(view_of(memory.at(argument.tensors.front()->value), argument.tensors.front()->geometry));
      }
    }
    op.call->op.callBoxed(stack);
    const std::vector<at::Tensor> results = tensors_of(stack);
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      if (op.outputs[i]) memory[op.outputs[i]->value] = results[i];
    }
    for (const ValueId made : op.also_makes) memory[made] = memory.at(program.values[index(made)].overwrites);
  }
  return memory;
}

// Whether slices make of the same numbers what the whole call does, bit for bit.
bool has_the_bits_of_the_whole(const OneCall& one, const SlicedProgram& sliced) {
  ByValue given;
  for (std::size_t i = 0; i < one.program->inputs.size(); ++i) {
    given[sliced.program->inputs[i]->value] = one.given.at(one.program->inputs[i]->value);
  }
  const ByValue whole = run_in_order(*one.program, one.given), in_slices = run_in_order(*sliced.program, given);
  ByValue complete;  // the last version of each end
  for (const ProgramOp& op : sliced.program->ops) {
    for (const ValueId made : makes(op)) complete[sliced.value_origins[index(made)].whole] = in_slices.at(made);
  }
  return std::ranges::all_of(one.program->ops.front().outputs, [&](const std::optional<TensorUse>& use) {
    return !use || same_bits(view_of(complete.at(use->value), use->geometry), whole.at(use->value));
  });
}

at::Tensor numbers(std::vector<std::int64_t> sizes, at::ScalarType dtype = at::kFloat) {
  return torch::randn(sizes, torch::TensorOptions().device(test_device())).to(dtype);
}
at::Tensor labels(std::int64_t count, std::int64_t below) {
  return torch::randint(0, below, {count}, torch::TensorOptions(at::kLong).device(test_device()));
}
c10::IValue integers(std::initializer_list<std::int64_t> list) { return c10::List<std::int64_t>(list); }

using Pick = std::function<std::int64_t(std::int64_t from, std::int64_t to)>;

Pick pick_with(std::uint32_t seed) {
  return [random = std::mt19937(seed)](std::int64_t from, std::int64_t to) mutable {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random);
  };
}

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
  for (const std::int64_t reduction : {0, 1, 2}) {
    const at::Tensor seed = reduction == 0 ? numbers({rows}, dtype) : numbers({}, dtype);
    calls.emplace_back("aten::nll_loss_backward",
                       std::vector<c10::IValue>{seed, matrix, labels(rows, inner), none, reduction, -100, total});
  }
  return calls;
}

// Ones with any sign: however few of them are added up, in whatever order and type, nothing is rounded.
at::Tensor signs(std::vector<std::int64_t> sizes, at::ScalarType dtype) {
  const at::Tensor bits = torch::randint(0, 2, sizes, torch::TensorOptions(at::kLong).device(test_device()));
  return (2 * bits - 1).to(dtype);
}

// A call and into how many units it is cut.
struct CutCall {
  OneCall one;
  std::int64_t units;
};

std::vector<CutCall> sums_of_rows(const Pick& pick, at::ScalarType dtype) {
  const std::int64_t outer = pick(1, 4), rows = outer * pick(2, 12), inner = pick(1, 5), wide = pick(1, 30);
  const at::Tensor deep = signs({outer, rows / outer, inner}, dtype);
  std::vector<CutCall> calls;
  for (const bool keeps : {false, true}) {
    for (const auto& over : {integers({0, 1}), integers({1, 0, 2})}) {
      calls.push_back({OneCall("aten::sum.dim_IntList", {deep, over, keeps, c10::IValue()}), rows});
    }
  }
  calls.push_back({OneCall("aten::mm", {signs({rows, wide}, dtype).t(), signs({rows, inner}, dtype)}), rows});
  return calls;
}

// Products and sums of rows that stay apart, of odd shapes and in other orders of memory.
std::vector<CutCall> products_of_rows(const Pick& pick, at::ScalarType dtype) {
  const std::int64_t rows = pick(2, 40), inner = pick(1, 40), wide = pick(1, 30), batch = pick(2, 6);
  const at::Tensor left = signs({rows, inner}, dtype), right = signs({wide, inner}, dtype).t();
  std::vector<CutCall> calls;
  calls.push_back({OneCall("aten::mm", {left, right}), rows});
  calls.push_back({OneCall("aten::mm", {signs({inner, rows}, dtype).t(), right}), rows});
  for (const at::Tensor& added : {signs({wide}, dtype), signs({1, wide}, dtype), signs({rows, wide}, dtype)}) {
    calls.push_back({OneCall("aten::addmm", {added, left, right, 1, 1}), rows});
  }
  calls.push_back(
      {OneCall("aten::bmm", {signs({batch, rows, inner}, dtype), signs({batch, inner, wide}, dtype)}), batch});
  calls.push_back({OneCall("aten::sum.dim_IntList", {left, integers({1}), pick(0, 1) == 1, c10::IValue()}), rows});
  return calls;
}

// A convolution of any kind, and all that its backward may make, so small that sums stay below 256.
std::vector<CutCall> calls_of_convolutions(const Pick& pick, at::ScalarType dtype) {
  const std::int64_t images = pick(2, 5), size = pick(3, 6), groups = pick(1, 2), kernel = pick(1, 3);
  const std::int64_t from = groups * pick(1, 3), to = groups * pick(1, 4);
  const at::Tensor input = signs({images, from, size, size}, dtype);
  const at::Tensor weight = signs({to, from / groups, kernel, kernel}, dtype), bias = signs({to}, dtype);
  const c10::IValue stride = integers({pick(1, 2), 1}), padding = integers({pick(0, 1), 1}), one = integers({1, 1});
  const c10::IValue none, zero = integers({0, 0});
  OneCall forward("aten::convolution", {input, weight, bias, stride, padding, one, false, zero, groups});
  const at::Tensor gradient = signs(forward.program->ops.front().outputs.front()->geometry.sizes, dtype);
  const at::Tensor stand_in = signs({1}, dtype).expand_as(input);
  std::vector<CutCall> calls;
  calls.push_back({std::move(forward), images});
  const auto backward = [&](const at::Tensor& of, std::array<bool, 3> makes) {
    const c10::List<bool> mask({makes[0], makes[1], makes[2]});
    calls.push_back({OneCall("aten::convolution_backward",
                             {gradient, of, weight, integers({to}), stride, padding, one, false, zero, groups, mask}),
                     images});
  };
  backward(input, {true, false, false});
  backward(stand_in, {true, false, false});
  backward(input, {false, true, false});
  backward(input, {false, true, true});
  backward(input, {true, true, true});
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

TEST(SliceRules, OfImagesGiveTheBitsOfTheWholeCall) {
  const Pick pick = pick_with(3);
  for (int trial = 0; trial < 6; ++trial) {
    torch::manual_seed(trial);
    const std::int64_t images = pick(3, 9);
    for (const OneCall& one : calls_on_images(images, 2 * pick(2, 9), at::kDouble)) {
      const std::string& name = one.program->ops.front().name;
      ASSERT_TRUE(one.can_be_cut(images)) << name;
      EXPECT_FALSE(one.can_be_cut(images * 4)) << name;  // channels depend on one another, or are not looked at
      if (!test_device().is_cpu() && name.find("convolution") != std::string::npos) continue;
      const std::int64_t slices = pick(2, 3);
      EXPECT_TRUE(one.differing(images, slices).empty()) << name << " of " << images;
      EXPECT_TRUE(has_the_bits_of_the_whole(one, one.sliced(images, slices))) << name << " of " << images;
    }
  }
}

TEST(SliceRules, OfEveryRuleGiveTheBitsOfTheWholeCall) {
  const Pick pick = pick_with(1);
  for (int trial = 0; trial < 6; ++trial) {
    torch::manual_seed(trial);
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
        EXPECT_TRUE(one.differing(rows, slices).empty() && has_the_bits_of_the_whole(one, one.sliced(rows, slices)))
            << name << " of " << rows << " x " << inner << " in " << slices << ", " << c10::toString(dtype);
      }
    }
  }
}

// The shapes leave remainders.
TEST(SliceRules, OfOddShapesGiveTheBitsOfTheWholeCall) {
  const Pick pick = pick_with(2);
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
      const std::int64_t slices = pick(2, std::min<std::int64_t>(rows, 6));
      EXPECT_TRUE(one.differing(rows, slices).empty() && has_the_bits_of_the_whole(one, one.sliced(rows, slices)))
          << name;
    }
  }
}

// Nothing is rounded, so that sums have the bits of the whole, too.
TEST(SliceRules, AddUpWhatTheWholeCallAddsUp) {
  const Pick pick = pick_with(4);
  for (int trial = 0; trial < 10; ++trial) {
    torch::manual_seed(trial);
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
      for (const auto& make : {sums_of_rows, products_of_rows, calls_of_convolutions}) {
        for (const auto& [one, units] : make(pick, dtype)) {
          const std::int64_t slices = pick(2, std::min<std::int64_t>(units, 6));
          EXPECT_TRUE(has_the_bits_of_the_whole(one, one.sliced(units, slices)))
              << one.program->ops.front().name << " of " << units << " in " << slices << ", trial " << trial << ", "
              << c10::toString(dtype);
        }
      }
    }
  }
}

TEST(SliceRules, AreAllCompared) {
  const Pick pick = pick_with(5);
  std::map<Made, std::set<std::string>> compared;
  const auto note = [&](const OneCall& one, std::int64_t units) {
    const ProgramOp& op = one.program->ops.front();
    const SliceRule rule = slice_rule(op, units, Sums::kInSlices).value();
    for (const Made made : rule.results) compared[made].insert(op.call->op.operator_name().name);
  };
  for (const OneCall& one : calls_of_rules(2, 12, 5, at::kDouble)) note(one, 12);
  for (const OneCall& one : calls_on_images(4, 6, at::kDouble)) note(one, 4);
  for (const auto& make : {sums_of_rows, products_of_rows, calls_of_convolutions}) {
    for (const auto& [one, units] : make(pick, at::kDouble)) note(one, units);
  }
  for (const Made made : {Made::kUnits, Made::kSum}) {
    for (const std::string& name : operators_with_rules(made)) {
      EXPECT_TRUE(compared[made].contains(name)) << name << " has a rule that no test compares with the whole call";
    }
  }
}

TEST(SliceRules, AreRefusedWhereUnitsDependOnOneAnother) {
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

TEST(SliceRules, WithWrongNumbersAreNoticed) {
  const OneCall one("aten::mul.Tensor", {numbers({12, 8}), numbers({12, 8})});
  SlicedProgram sliced = one.sliced(12, 3);
  EXPECT_TRUE(differing_calls(sliced).empty());
  EXPECT_TRUE(has_the_bits_of_the_whole(one, sliced));
  ProgramOp& last = sliced.program->ops.back();
  last.call->arguments[0].tensors.front()->geometry.offset -= 8;  // one row too early
  EXPECT_EQ(differing_calls(sliced), std::set<OpId>{op_id(0)});
  EXPECT_FALSE(has_the_bits_of_the_whole(one, sliced));
}

TEST(SliceRules, AreRangesOfUnits) {
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

TEST(SliceRules, AddUpOnlyWhereTheyMay) {
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
