// Numbers of a step that follow from the sizes of its inputs: expressions over the sizes that vary, the symbols.
//
// Where a step of any size is described, a number stands for itself, or it is the name of an expression. Names lie
// where no size, stride, offset or argument of an operator does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace reprise {

class SizeTable {
 public:
  enum class Code : std::uint8_t { kConstant, kSymbol, kAdd, kMultiply, kFloorDivide, kModulo, kMaximum, kMinimum };
  struct Instruction {
    Code code = Code::kConstant;
    std::int64_t number = 0;  // the constant, or which symbol
  };
  using Expression = std::vector<Instruction>;  // postfix: operands before what combines them

  // Returns the name. Throws InputError if this is not an expression over so many symbols.
  std::int64_t add(Expression expression, std::size_t num_symbols);

  // What numbers are at one size.
  class Numbers {
   public:
    [[nodiscard]] std::int64_t operator()(std::int64_t number) const;

   private:
    friend class SizeTable;
    std::vector<std::int64_t> values_;
  };
  // Throws InputError if an expression is not a number there: it divides by zero, or is too large.
  [[nodiscard]] Numbers at(std::span<const std::int64_t> symbols) const;

 private:
  std::vector<Expression> expressions_;
};

}  // namespace reprise
