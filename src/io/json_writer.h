// Appends JSON to a string: the few shapes our files are made of, always in the same spelling.
//
//   JsonObject point(out);
//   point.field("x", 3);
//   point.unless("label", label, "");  // left out if it has the reader's default
#pragma once

#include <charconv>
#include <concepts>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "reprise/error.h"

namespace reprise::detail {

// Throws InputError if the text is not UTF-8.
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

// A flag, a number, an id, a text, or a list of such.
template <typename T>
void append_json(std::string& out, const T& value) {
  if constexpr (std::same_as<T, bool>) {
    out += value ? "true" : "false";
  } else if constexpr (std::integral<T>) {
    append_number(out, value);
  } else if constexpr (std::is_enum_v<T>) {
    append_number(out, index(value));
  } else if constexpr (std::convertible_to<const T&, std::string_view>) {
    append_json_string(out, value);
  } else {
    append_list(out, value, [&](const auto& element) { append_json(out, element); });
  }
}

// One object, key by key; the destructor ends it.
class JsonObject {
 public:
  explicit JsonObject(std::string& out) : out_(out) { out_ += '{'; }
  ~JsonObject() { out_ += '}'; }
  JsonObject(const JsonObject&) = delete;
  JsonObject& operator=(const JsonObject&) = delete;

  // Where the value is to be appended.
  std::string& key(std::string_view name) { return begin(name, is_empty_ ? "\"" : ",\""); }
  std::string& line(std::string_view name) { return begin(name, is_empty_ ? "\n\"" : ",\n\""); }  // on a new line

  template <typename T>
  void field(std::string_view name, const T& value) {
    append_json(key(name), value);
  }
  template <typename T>
  void line(std::string_view name, const T& value) {
    append_json(line(name), value);
  }
  template <typename T>
  void unless(std::string_view name, const T& value, const std::type_identity_t<T>& none) {
    if (value != none) field(name, value);
  }
  template <typename T>
  void unless_empty(std::string_view name, const T& list) {
    if (!list.empty()) field(name, list);
  }

 private:
  std::string& begin(std::string_view name, std::string_view before) {
    is_empty_ = false;
    return out_.append(before).append(name).append("\":");
  }

  std::string& out_;
  bool is_empty_ = true;
};

// Texts and their positions, in the order in which they first occur.
class JsonNames {
 public:
  std::size_t operator[](std::string_view name) {
    const auto [at, is_new] = positions_.try_emplace(std::string(name), list_.size());
    if (is_new) list_.emplace_back(name);
    return at->second;
  }
  [[nodiscard]] const std::vector<std::string>& list() const { return list_; }

 private:
  std::map<std::string, std::size_t, std::less<>> positions_;
  std::vector<std::string> list_;
};

// The name of a value in a closed set of strings; the reverse of JsonReader::choice.
template <typename Enum, std::size_t N>
std::string_view name_of(const std::pair<std::string_view, Enum> (&choices)[N], Enum value) {
  for (const auto& [name, named] : choices) {
    if (named == value) return name;
  }
  throw InternalError("an enumerator without a name");
}

}  // namespace reprise::detail
