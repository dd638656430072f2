#include "runtime/program/family/size_table.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "reprise/error.h"

namespace reprise {
namespace {

constexpr std::int64_t kFirstName = -(std::int64_t{1} << 61);
constexpr std::int64_t kMostNames = std::int64_t{1} << 20;
constexpr std::size_t kMostInstructions = 4096;  // of one expression

bool is_operand(SizeTable::Instruction instruction) {
  return instruction.code == SizeTable::Code::kConstant || instruction.code == SizeTable::Code::kSymbol;
}

bool is_quotient(std::int64_t a, std::int64_t b) {
  return b != 0 && (a != std::numeric_limits<std::int64_t>::min() || b != -1);
}

// Towards minus infinity, as Python divides.
std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  const std::int64_t towards_zero = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? towards_zero - 1 : towards_zero;
}

// With the sign of b.
std::int64_t floor_modulo(std::int64_t a, std::int64_t b) {
  const std::int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

std::optional<std::int64_t> combined(SizeTable::Code code, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  switch (code) {
    case SizeTable::Code::kAdd:
      return __builtin_add_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    case SizeTable::Code::kMultiply:
      return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    case SizeTable::Code::kFloorDivide:
      return is_quotient(a, b) ? std::optional(floor_divide(a, b)) : std::nullopt;
    case SizeTable::Code::kModulo:
      return is_quotient(a, b) ? std::optional(floor_modulo(a, b)) : std::nullopt;
    case SizeTable::Code::kMaximum:
      return std::max(a, b);
    case SizeTable::Code::kMinimum:
      return std::min(a, b);
    case SizeTable::Code::kEqual:
      return a == b ? 1 : 0;
    case SizeTable::Code::kLess:
      return a < b ? 1 : 0;
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

std::string words_of(SizeTable::Code code, const std::string& a, const std::string& b) {
  switch (code) {
    case SizeTable::Code::kAdd:
      return "(" + a + " + " + b + ")";
    case SizeTable::Code::kMultiply:
      return "(" + a + " * " + b + ")";
    case SizeTable::Code::kFloorDivide:
      return "(" + a + " // " + b + ")";
    case SizeTable::Code::kModulo:
      return "(" + a + " % " + b + ")";
    case SizeTable::Code::kMaximum:
      return "max(" + a + ", " + b + ")";
    case SizeTable::Code::kMinimum:
      return "min(" + a + ", " + b + ")";
    case SizeTable::Code::kEqual:
      return "(" + a + " == " + b + ")";
    case SizeTable::Code::kLess:
      return "(" + a + " < " + b + ")";
    case SizeTable::Code::kConstant:
    case SizeTable::Code::kSymbol:
      break;
  }
  throw InternalError("this instruction has no operands");
}

}  // namespace

void SizeTable::check(const Expression& expression, std::size_t num_symbols) {
  if (expression.size() > kMostInstructions) throw InputError("an expression of sizes is too long");
  std::size_t depth = 0;
  for (const Instruction instruction : expression) {
    const bool is_known = instruction.number >= 0 && static_cast<std::size_t>(instruction.number) < num_symbols;
    if (instruction.code == Code::kSymbol && !is_known) throw InputError("an expression over an unknown symbol");
    if (!is_operand(instruction) && depth < 2) throw InputError("an expression lacks an operand");
    depth = is_operand(instruction) ? depth + 1 : depth - 1;
  }
  if (depth != 1) throw InputError("an expression has " + std::to_string(depth) + " results");
}

std::int64_t SizeTable::add(Expression expression, std::size_t num_symbols) {
  check(expression, num_symbols);
  if (static_cast<std::int64_t>(expressions_.size()) == kMostNames) throw InputError("too many expressions of sizes");
  expressions_.push_back(std::move(expression));
  return name(expressions_.size() - 1);
}

std::int64_t SizeTable::name(std::size_t position) { return kFirstName + static_cast<std::int64_t>(position); }

std::optional<std::size_t> SizeTable::position(std::int64_t number) {
  if (number < kFirstName || number >= kFirstName + kMostNames) return std::nullopt;
  return static_cast<std::size_t>(number - kFirstName);
}

std::int64_t SizeTable::Numbers::operator()(std::int64_t number) const {
  const auto named = position(number);
  return named ? values_.at(*named) : number;
}

SizeTable::Numbers SizeTable::at(std::span<const std::int64_t> symbols) const {
  Numbers numbers;
  std::vector<std::int64_t> stack;
  for (const Expression& expression : expressions_) numbers.values_.push_back(evaluated(expression, symbols, stack));
  return numbers;
}

std::int64_t SizeTable::value(const Expression& expression, std::span<const std::int64_t> symbols) {
  std::vector<std::int64_t> stack;
  return evaluated(expression, symbols, stack);
}

std::string SizeTable::words(const Expression& expression, std::span<const std::string> symbols) {
  struct Part {
    std::string text;
    bool compares = false;
  };
  std::vector<Part> stack;
  for (const Instruction instruction : expression) {
    if (instruction.code == Code::kConstant) {
      stack.push_back({std::to_string(instruction.number)});
    } else if (instruction.code == Code::kSymbol) {
      stack.push_back({symbols[static_cast<std::size_t>(instruction.number)]});
    } else {
      const std::string right = std::move(stack.back().text);
      stack.pop_back();
      Part& left = stack.back();
      const bool is_negation = instruction.code == Code::kEqual && left.compares && right == "0";
      left.text = is_negation ? "not " + left.text : words_of(instruction.code, left.text, right);
      left.compares = instruction.code == Code::kEqual || instruction.code == Code::kLess;
    }
  }
  return stack.back().text;
}

}  // namespace reprise
