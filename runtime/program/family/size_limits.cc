#include "runtime/program/family/size_limits.h"

#include <algorithm>

#include "reprise/error.h"

namespace reprise {
namespace {

// A condition that is not a number at a size does not hold there.
bool holds(const SizeTable::Expression& condition, std::span<const std::int64_t> symbols) {
  try {
    return SizeTable::value(condition, symbols) != 0;
  } catch (const InputError&) {
    return false;
  }
}

std::string words_of(const SizeLimits::Range& range) {
  const std::string least = std::to_string(range.least);
  if (range.most == SizeLimits::Range{}.most) return " is at least " + least;
  return range.least == range.most ? " is " + least : " is from " + least + " to " + std::to_string(range.most);
}

}  // namespace

bool SizeLimits::hold_at(std::span<const std::int64_t> symbols) const {
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (symbols[i] < ranges[i].least || symbols[i] > ranges[i].most) return false;
  }
  return std::ranges::all_of(conditions, [&](const auto& condition) { return holds(condition, symbols); });
}

std::string SizeLimits::words(std::span<const std::string> symbols) const {
  std::string text;
  for (std::size_t i = 0; i < ranges.size(); ++i) text += (i == 0 ? "" : ", ") + symbols[i] + words_of(ranges[i]);
  for (const auto& condition : conditions) text += ", and " + SizeTable::words(condition, symbols);
  return text;
}

}  // namespace reprise
