// Appends JSON to a string: the few shapes our files are made of, always in the same spelling.
#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

namespace reprise::detail {

// Throws InputError where the text is not UTF-8.
void append_json_string(std::string& out, std::string_view text);

[[nodiscard]] bool is_utf8(std::string_view text);

void append_number(std::string& out, std::integral auto number) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
  out.append(digits, end);
}

// "[a,b,c]", each element appended by `append(element)`.
template <typename Range, typename Append>
void append_list(std::string& out, const Range& elements, Append append) {
  char separator = '[';
  for (const auto& element : elements) {
    out += separator;
    append(element);
    separator = ',';
  }
  if (separator == '[') out += '[';
  out += ']';
}

}  // namespace reprise::detail
