#include "runtime/program/family/size_table.h"

#include <algorithm>
#include <optional>
#include <string>

#include "reprise/error.h"

namespace reprise {
namespace {

constexpr std::int64_t kFirstName = -(std::int64_t{1} << 61);
constexpr std::int64_t kMostNames = std::int64_t{1} << 20;

bool is_name(std::int64_t number) { return number >= kFirstName && number < kFirstName + kMostNames; }

// Towards minus infinity, as Python divides.
std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  const std::int64_t towards_zero = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? towards_zero - 1 : towards_zero;
}

std::optional<std::int64_t> combined(SizeTable::Code code, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  switch (code) {
    case SizeTable::Code::kAdd:
      return __builtin_add_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    case SizeTable::Code::kMultiply:
      return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    case SizeTable::Code::kFloorDivide:
      return b == 0 ? std::nullopt : std::optional(floor_divide(a, b));
    case SizeTable::Code::kModulo:
      return b == 0 ? std::nullopt : std::optional(a - floor_divide(a, b) * b);
    case SizeTable::Code::kMaximum:
      return std::max(a, b);
    case SizeTable::Code::kMinimum:
      return std::min(a, b);
    case SizeTable::Code::kConstant:
    case SizeTable::Code::kSymbol:
      break;
  }
  throw InternalError("this instruction has no operands");
}

std::int64_t evaluated(const SizeTable::Expression& expression, std::span<const std::int64_t> symbols,
                       std::vector<std::int64_t>& stack) {
  stack.clear();
  for (const SizeTable::Instruction instruction : expression) {
    if (instruction.code == SizeTable::Code::kConstant) {
      stack.push_back(instruction.number);
    } else if (instruction.code == SizeTable::Code::kSymbol) {
      stack.push_back(symbols[static_cast<std::size_t>(instruction.number)]);
    } else {
      const std::int64_t right = stack.back();
      stack.pop_back();
      const auto result = combined(instruction.code, stack.back(), right);
      if (!result) throw InputError("these sizes are too large, or a size that follows from them divides by zero");
      stack.back() = *result;
    }
  }
  return stack.back();
}

}  // namespace

std::int64_t SizeTable::add(Expression expression, std::size_t num_symbols) {
  std::size_t depth = 0;
  for (const Instruction instruction : expression) {
    const bool is_operand = instruction.code == Code::kConstant || instruction.code == Code::kSymbol;
    const bool is_known = instruction.number >= 0 && static_cast<std::size_t>(instruction.number) < num_symbols;
    if (instruction.code == Code::kSymbol && !is_known) throw InputError("an expression over an unknown symbol");
    if (!is_operand && depth < 2) throw InputError("an expression lacks an operand");
    depth = is_operand ? depth + 1 : depth - 1;
  }
  if (depth != 1) throw InputError("an expression has " + std::to_string(depth) + " results");
  if (static_cast<std::int64_t>(expressions_.size()) == kMostNames) throw InputError("too many expressions of sizes");
  expressions_.push_back(std::move(expression));
  return kFirstName + static_cast<std::int64_t>(expressions_.size()) - 1;
}

std::int64_t SizeTable::Numbers::operator()(std::int64_t number) const {
  return is_name(number) ? values_.at(static_cast<std::size_t>(number - kFirstName)) : number;
}

SizeTable::Numbers SizeTable::at(std::span<const std::int64_t> symbols) const {
  Numbers numbers;
  std::vector<std::int64_t> stack;
  for (const Expression& expression : expressions_) numbers.values_.push_back(evaluated(expression, symbols, stack));
  return numbers;
}

}  // namespace reprise
