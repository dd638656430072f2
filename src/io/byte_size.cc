// Sizes as people write them. All arithmetic is exact: a budget is a promise, not an approximation.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "reprise/error.h"
#include "reprise/io.h"

namespace reprise {
namespace {

constexpr std::int64_t kKibi = 1024;

constexpr std::pair<std::string_view, std::int64_t> kUnits[] = {
    {"", 1},
    {"b", 1},
    {"kb", 1'000},
    {"mb", 1'000'000},
    {"gb", 1'000'000'000},
    {"tb", 1'000'000'000'000},
    {"kib", std::int64_t{1} << 10},
    {"mib", std::int64_t{1} << 20},
    {"gib", std::int64_t{1} << 30},
    {"tib", std::int64_t{1} << 40},
};

constexpr std::string_view kDigits = "0123456789";

[[noreturn]] void fail(std::string_view text, std::string_view why) {
  throw InputError("'" + std::string(text) + "' is not a size: " + std::string(why));
}

// Removes and returns the digits `text` begins with.
std::string_view take_digits(std::string_view& text) {
  const std::string_view digits = text.substr(0, std::min(text.find_first_not_of(kDigits), text.size()));
  text.remove_prefix(digits.size());
  return digits;
}

std::int64_t unit_bytes(std::string_view unit, std::string_view text) {
  std::string lower;
  for (const char c : unit) lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (const auto& [name, bytes] : kUnits) {
    if (name == lower) return bytes;
  }
  fail(text, "the unit must be B, KB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024)");
}

// floor(0.digits * unit), from the last digit to the first: every inner floor leaves the outer one as it is.
std::int64_t fraction_bytes(std::string_view digits, std::int64_t unit) {
  std::int64_t bytes = 0;
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit) bytes = ((*digit - '0') * unit + bytes) / 10;
  return bytes;
}

}  // namespace

std::int64_t parse_bytes(std::string_view text) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  std::string_view rest = text;
  const std::string_view whole_digits = take_digits(rest);
  if (whole_digits.empty()) fail(text, "it must begin with a digit, as in 6GiB");
  std::string_view fraction_digits;
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    fraction_digits = take_digits(rest);
    if (fraction_digits.empty()) fail(text, "a digit must follow the point");
  }
  if (rest.starts_with(' ')) rest.remove_prefix(1);
  const std::int64_t unit = unit_bytes(rest, text);
  if (unit == 1 && !fraction_digits.empty()) fail(text, "bytes have no fraction");

  std::int64_t whole = 0;
  for (const char digit : whole_digits) {
    if (whole > (kMax - 9) / 10) fail(text, "too large");
    whole = whole * 10 + (digit - '0');
  }
  if (whole > kMax / unit - 1) fail(text, "too large");
  return whole * unit + fraction_bytes(fraction_digits, unit);
}

std::string format_bytes(std::int64_t bytes) {
  constexpr std::array kNames = {" KiB", " MiB", " GiB", " TiB", " PiB"};
  if (bytes < kKibi) return std::to_string(bytes) + " B";
  std::size_t name = 0;
  std::int64_t unit = kKibi;
  // An amount that would be rounded to 1024.00 of this unit is written as 1.00 of the next.
  while (name + 1 < kNames.size() && bytes >= unit * kKibi - unit / 200) {
    unit *= kKibi;
    ++name;
  }
  const std::int64_t rounded_up = bytes % unit * 100 + unit / 2;
  const std::int64_t whole = bytes / unit + rounded_up / unit / 100;
  const std::int64_t hundredths = rounded_up / unit % 100;
  return std::to_string(whole) + (hundredths < 10 ? ".0" : ".") + std::to_string(hundredths) + kNames[name];
}

}  // namespace reprise
