// Numbers of a step that follow from the sizes of its inputs: expressions over the sizes that vary, the symbols.
//
// Where a step of any size is described, a number stands for itself, or it is the name of an expression. Names lie
// where no size, stride, offset or argument of an operator does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace reprise {

class SizeTable {
 public:
  // A comparison gives 1 or 0.
  enum class Code : std::uint8_t {
    kConstant,
    kSymbol,
    kAdd,
    kMultiply,
    kFloorDivide,
    kModulo,
    kMaximum,
    kMinimum,
    kEqual,
    kLess
  };
  struct Instruction {
    Code code = Code::kConstant;
    std::int64_t number = 0;  // the constant, or which symbol
  };
  using Expression = std::vector<Instruction>;  // postfix: operands before what combines them

  // Returns the name. Throws InputError if this is not an expression over so many symbols.
  std::int64_t add(Expression expression, std::size_t num_symbols);

  [[nodiscard]] const std::vector<Expression>& expressions() const { return expressions_; }
  // The position of the expression that a number names; nothing if it stands for itself. And the other way round.
  [[nodiscard]] static std::optional<std::size_t> position(std::int64_t number);
  [[nodiscard]] static std::int64_t name(std::size_t position);

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

  // The same for one expression.
  [[nodiscard]] static std::int64_t value(const Expression& expression, std::span<const std::int64_t> symbols);
  // Throws InputError if this is not an expression over so many symbols.
  static void check(const Expression& expression, std::size_t num_symbols);
  // The expression for people, with these words for the symbols.
  [[nodiscard]] static std::string words(const Expression& expression, std::span<const std::string> symbols);

 private:
  std::vector<Expression> expressions_;
};

inline constexpr std::pair<std::string_view, SizeTable::Code> kSizeCodes[] = {
    {"constant", SizeTable::Code::kConstant},
    {"symbol", SizeTable::Code::kSymbol},
    {"add", SizeTable::Code::kAdd},
    {"multiply", SizeTable::Code::kMultiply},
    {"divide", SizeTable::Code::kFloorDivide},
    {"modulo", SizeTable::Code::kModulo},
    {"maximum", SizeTable::Code::kMaximum},
    {"minimum", SizeTable::Code::kMinimum},
    {"equal", SizeTable::Code::kEqual},
    {"less", SizeTable::Code::kLess},
};

}  // namespace reprise
