// Tests steps for inputs of any size: a member is the program that a builder makes at that size.
#include "runtime/program/family/program_family.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

#include "reprise/error.h"
#include "runtime/program/family/difference.h"
#include "runtime/program/family/size_limits.h"

namespace reprise {
namespace {

using Code = SizeTable::Code;

std::int64_t at(const SizeTable::Expression& expression, std::vector<std::int64_t> symbols) {
  SizeTable table;
  const std::int64_t name = table.add(expression, symbols.size());
  return table.at(symbols)(name);
}

SizeTable::Expression of_two(Code code, std::int64_t right) {
  return {{Code::kSymbol, 0}, {Code::kConstant, right}, {code}};
}

TEST(SizeTable, ComputesAsPythonDoes) {
  EXPECT_EQ(at(of_two(Code::kAdd, 3), {7}), 10);
  EXPECT_EQ(at(of_two(Code::kMultiply, 3), {7}), 21);
  EXPECT_EQ(at(of_two(Code::kFloorDivide, 2), {7}), 3);
  EXPECT_EQ(at(of_two(Code::kFloorDivide, 2), {-7}), -4);
  EXPECT_EQ(at(of_two(Code::kModulo, 4), {-7}), 1);
  EXPECT_EQ(at(of_two(Code::kModulo, -4), {7}), -1);
  EXPECT_EQ(at(of_two(Code::kModulo, 3), {INT64_MIN}), 1);
  EXPECT_EQ(at(of_two(Code::kMaximum, 4), {7}), 7);
  EXPECT_EQ(at(of_two(Code::kMinimum, 4), {7}), 4);
  EXPECT_EQ(at(of_two(Code::kEqual, 7), {7}), 1);
  EXPECT_EQ(at(of_two(Code::kEqual, 8), {7}), 0);
  EXPECT_EQ(at(of_two(Code::kLess, 8), {7}), 1);
  EXPECT_EQ(at(of_two(Code::kLess, 7), {7}), 0);
  // (a + b) * a
  EXPECT_EQ(at({{Code::kSymbol, 0}, {Code::kSymbol, 1}, {Code::kAdd}, {Code::kSymbol, 0}, {Code::kMultiply}}, {2, 5}),
            14);
}

TEST(SizeTable, LeavesOtherNumbersAsTheyAre) {
  SizeTable table;
  (void)table.add(of_two(Code::kAdd, 1), 1);
  const SizeTable::Numbers numbers = table.at(std::vector<std::int64_t>{3});
  for (const std::int64_t number : {std::int64_t{0}, std::int64_t{-1}, INT64_MAX, INT64_MIN}) {
    EXPECT_EQ(numbers(number), number);
  }
}

TEST(SizeTable, RefusesWhatIsNoNumber) {
  SizeTable table;
  EXPECT_THROW(table.add({{Code::kSymbol, 1}}, 1), InputError);
  EXPECT_THROW(table.add({{Code::kConstant, 1}, {Code::kAdd}}, 1), InputError);
  EXPECT_THROW(table.add({{Code::kConstant, 1}, {Code::kConstant, 1}}, 1), InputError);
  EXPECT_THROW(at(of_two(Code::kFloorDivide, 0), {7}), InputError);
  EXPECT_THROW(at(of_two(Code::kMultiply, INT64_MAX), {7}), InputError);
  for (const Code code : {Code::kFloorDivide, Code::kModulo}) {
    EXPECT_THROW(at({{Code::kSymbol, 0}, {Code::kConstant, -1}, {code}}, {INT64_MIN}), InputError);
  }
}

TEST(SizeLimits, HoldInsideOfTheirRangesWhereNoConditionFails) {
  const SizeLimits limits{
      .ranges = {{.least = 2, .most = 15}, {.least = 2}},
      .conditions = {
          {{Code::kSymbol, 0}, {Code::kSymbol, 1}, {Code::kLess}},
          {{Code::kConstant, 60}, {Code::kSymbol, 0}, {Code::kModulo}, {Code::kConstant, 0}, {Code::kEqual}}}};
  const auto hold_at = [&](std::int64_t a, std::int64_t b) { return limits.hold_at(std::vector{a, b}); };
  EXPECT_TRUE(hold_at(2, 3));
  EXPECT_TRUE(hold_at(15, 16));
  EXPECT_FALSE(hold_at(1, 3));
  EXPECT_FALSE(hold_at(20, 30));
  EXPECT_FALSE(hold_at(3, 3));
  EXPECT_FALSE(hold_at(7, 9));
  EXPECT_FALSE(SizeLimits{.conditions = {of_two(Code::kFloorDivide, 0)}}.hold_at(std::vector<std::int64_t>{3}));
  EXPECT_EQ(limits.words(std::vector<std::string>{"a", "b"}),
            "a is from 2 to 15, b is at least 2, and (a < b), and ((60 % a) == 0)");
  EXPECT_EQ(
      SizeTable::words({{Code::kSymbol, 0}, {Code::kConstant, 16}, {Code::kLess}, {Code::kConstant, 0}, {Code::kEqual}},
                       std::vector<std::string>{"a"}),
      "not (a < 16)");
}

Geometry floats(std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides) {
  return {.sizes = std::move(sizes), .strides = std::move(strides)};
}

Argument reading(const TensorUse& use) { return {.kind = Argument::Kind::kTensor, .tensors = {use}}; }

ProgramBuilder::SeenCall seen(const std::string& op, std::vector<Argument> arguments, const TensorUse& result) {
  Call call{find_operator(op).value(), std::move(arguments)};
  const CallFacts facts = facts_of(call);
  return {.name = op, .scope = "", .call = std::move(call), .facts = facts, .repeats = true, .results = {result}};
}

// Tells of a slice of the first `taken` of `rows` rows, squared and summed up, and returns its gradient. The numbers
// may be names.
template <typename Builder>
ProgramFamily::Gradients tell(Builder& builder, std::int64_t rows, std::int64_t bytes, std::int64_t taken,
                              std::int64_t taken_bytes, bool is_whole) {
  const TensorUse x{builder.resident(bytes, at::kCPU), floats({rows, 4}, {4, 1})};
  builder.input(x);
  const Geometry part = floats({taken, 4}, {4, 1});
  const TensorUse squared{builder.made(taken_bytes, at::kCPU), part};
  builder.call(seen("aten::mul.Tensor", {reading({x.value, part}), reading({x.value, part})}, squared));
  const TensorUse sum{builder.made(4, at::kCPU), floats({}, {})};
  builder.call(seen("aten::sum", {reading(squared), {}}, sum));
  const TensorUse one{builder.seed(4, at::kCPU), floats({}, {})};
  builder.end_forward({sum}, {one});
  const TensorUse slope{builder.made(taken_bytes, at::kCPU), part};
  builder.call(
      seen("aten::mul.Tensor", {reading({x.value, part}), reading({one.value, floats({taken, 4}, {0, 0})})}, slope));
  TensorUse gradient = slope;
  if (!is_whole) {
    gradient = {builder.made(bytes, at::kCPU), x.geometry};
    builder.call(seen("aten::slice_backward",
                      {reading(slope),
                       {.constant = std::vector<std::int64_t>{rows, 4}},
                       {.constant = 0},
                       {.constant = 0},
                       {.constant = taken},
                       {.constant = 1}},
                      gradient));
  }
  return {ProgramBuilder::Gradient{.use = gradient, .variable = x.geometry, .name = "x"}};
}

Program built(std::int64_t rows, std::int64_t taken) {
  ProgramBuilder builder("net", at::kCPU);
  const auto gradients = tell(builder, rows, 16 * rows, taken, 16 * taken, rows == taken);
  return builder.finish(gradients, false);
}

TEST(ProgramFamily, AMemberIsTheProgramAtItsSize) {
  ProgramFamily family("net", at::kCPU, 1);
  const std::int64_t rows = family.size({{Code::kSymbol, 0}});
  const std::int64_t bytes = family.size(of_two(Code::kMultiply, 16));
  family.finish(tell(family, rows, bytes, 3, 48, /*is_whole=*/false), false);
  for (const std::int64_t size : {4, 5, 9}) {
    EXPECT_EQ(difference(family.at(std::vector<std::int64_t>{size}), built(size, 3)), std::nullopt) << size;
  }
  EXPECT_NE(difference(family.at(std::vector<std::int64_t>{4}), built(5, 3)), std::nullopt);
  // A slice that takes everything is not a call, and neither is its gradient.
  EXPECT_EQ(difference(family.at(std::vector<std::int64_t>{3}), built(3, 3)), std::nullopt);
  EXPECT_THROW((void)family.at(std::vector<std::int64_t>{3, 4}), InputError);
}

}  // namespace
}  // namespace reprise
