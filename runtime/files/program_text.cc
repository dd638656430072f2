#include "runtime/files/program_text.h"

#include <torch/version.h>

#include <array>
#include <charconv>
#include <utility>

#include "reprise/error.h"

namespace reprise::detail {
namespace {

constexpr std::pair<std::string_view, at::ScalarType> kTypes[] = {
    {"bool", at::kBool},
    {"uint8", at::kByte},
    {"int8", at::kChar},
    {"int16", at::kShort},
    {"int32", at::kInt},
    {"int64", at::kLong},
    {"uint16", at::kUInt16},
    {"uint32", at::kUInt32},
    {"uint64", at::kUInt64},
    {"float16", at::kHalf},
    {"bfloat16", at::kBFloat16},
    {"float32", at::kFloat},
    {"float64", at::kDouble},
    {"complex32", at::kComplexHalf},
    {"complex64", at::kComplexFloat},
    {"complex128", at::kComplexDouble},
    {"float8_e4m3fn", at::kFloat8_e4m3fn},
    {"float8_e4m3fnuz", at::kFloat8_e4m3fnuz},
    {"float8_e5m2", at::kFloat8_e5m2},
    {"float8_e5m2fnuz", at::kFloat8_e5m2fnuz},
};

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<std::int8_t, 256> digit_values() {
  std::array<std::int8_t, 256> values{};
  values.fill(-1);
  for (std::size_t i = 0; i < kDigits.size(); ++i)
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<std::int8_t>(i);
  return values;
}

}  // namespace

std::string_view dtype_name(at::ScalarType dtype) {
  for (const auto& [name, type] : kTypes) {
    if (type == dtype) return name;
  }
  throw InputError(std::string("a program file cannot hold tensors of type ") + c10::toString(dtype));
}

std::optional<at::ScalarType> dtype_from(std::string_view name) {
  for (const auto& [known, type] : kTypes) {
    if (known == name) return type;
  }
  return std::nullopt;
}

std::string double_text(double number) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr};
}

std::optional<double> double_from(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string bytes_text(std::span<const std::uint8_t> bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 3; ++k) word = word << 8 | (k < count ? bytes[i + k] : 0U);
    for (std::size_t k = 0; k < 4; ++k) text += k <= count ? kDigits[word >> (18 - 6 * k) & 63U] : '=';
  }
  return text;
}

std::optional<std::string> bytes_from(std::string_view text) {
  static constexpr std::array<std::int8_t, 256> kValues = digit_values();
  if (text.size() % 4 != 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (std::size_t i = 0; i < text.size(); i += 4) {
    const std::size_t unused = i + 4 == text.size() ? padding : 0;
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      const int value = k < 4 - unused ? kValues[static_cast<unsigned char>(text[i + k])] : 0;
      if (value < 0) return std::nullopt;
      word = word << 6 | static_cast<std::uint32_t>(value);
    }
    for (std::size_t k = 0; k < 3 - unused; ++k) bytes += static_cast<char>(word >> (16 - 8 * k) & 255U);
  }
  return bytes;
}

std::string torch_version() { return TORCH_VERSION; }

}  // namespace reprise::detail
