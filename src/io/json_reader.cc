#include "io/json_reader.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "io/utf8.h"
#include "reprise/error.h"

namespace reprise::detail {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// "'a', 'b', 'c'"
std::string quoted_list(std::span<const std::string_view> names) {
  std::string list;
  for (const std::string_view name : names) {
    if (!list.empty()) list += ", ";
    list.append("'").append(name).append("'");
  }
  return list;
}

}  // namespace

void JsonReader::fail_at(std::size_t offset, const std::string& what) const {
  const std::string_view before = text_.substr(0, offset);
  const auto line = std::ranges::count(before, '\n') + 1;
  const std::size_t column = offset - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0: the first line
  const std::string place = path();
  throw InputError(std::string(source_) + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " + place +
                   (place.empty() ? "" : ": ") + what);
}

// "ops[41].inputs[2]"
std::string JsonReader::path() const {
  std::string text;
  for (const PathPart& part : path_) {
    if (part.key.empty()) {
      text.append("[").append(std::to_string(part.index)).append("]");
    } else {
      text.append(text.empty() ? "" : ".").append(part.key);
    }
  }
  return text;
}

std::string JsonReader::found() const {
  if (cursor_ == text_.size()) return "the end of the text; is the file complete?";
  const char c = text_[cursor_];
  switch (c) {
    case '{':
      return "an object";
    case '[':
      return "an array";
    case '"':
      return "a string";
    case 't':
    case 'f':
      return "true or false";
    case 'n':
      return "null";
    default:
      break;
  }
  if (is_digit(c) || c == '-') return "a number";
  if (c > ' ' && c <= '~') return std::string("'") + c + "'";
  return "byte " + std::to_string(static_cast<unsigned char>(c));
}

void JsonReader::skip_space() {
  while (cursor_ < text_.size() && is_space(text_[cursor_])) ++cursor_;
}

bool JsonReader::skip(char c) {
  skip_space();
  if (cursor_ == text_.size() || text_[cursor_] != c) return false;
  ++cursor_;
  return true;
}

void JsonReader::open(char bracket, const char* expected) {
  if (!skip(bracket)) fail_at(cursor_, std::string("expected ") + expected + ", found " + found());
}

void JsonReader::close(char bracket) {
  if (!skip(bracket)) fail_at(cursor_, std::string("expected ',' or '") + bracket + "', found " + found());
}

void JsonReader::finish() {
  skip_space();
  if (cursor_ != text_.size()) fail_at(cursor_, "expected nothing more, found " + found());
}

std::string JsonReader::string() {
  open('"', "a string");
  const std::size_t begin = cursor_ - 1;
  std::string out;
  while (true) {
    append_plain(out);
    if (cursor_ == text_.size()) fail_at(begin, "a string without end; is the file complete?");
    if (text_[cursor_] == '"') break;
    if (text_[cursor_] == '\\') {
      append_escape(out);
    } else {
      append_character(out);
    }
  }
  ++cursor_;
  token_ = begin;
  return out;
}

// A run of ASCII that stands for itself.
void JsonReader::append_plain(std::string& out) {
  const auto is_plain = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
  const std::size_t begin = cursor_;
  while (cursor_ < text_.size() && is_plain(text_[cursor_])) ++cursor_;
  out += text_.substr(begin, cursor_ - begin);
}

void JsonReader::append_character(std::string& out) {
  if (static_cast<unsigned char>(text_[cursor_]) < 0x20) fail_at(cursor_, "a control character in a string; escape it");
  const std::size_t length = utf8_length(text_, cursor_);
  if (length == 0) fail_at(cursor_, "not UTF-8");
  out += text_.substr(cursor_, length);
  cursor_ += length;
}

void JsonReader::append_escape(std::string& out) {
  constexpr std::string_view kEscapes = "\"\\/bfnrt";
  constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  const std::size_t begin = cursor_++;
  const char c = cursor_ < text_.size() ? text_[cursor_++] : '\0';
  if (const std::size_t i = kEscapes.find(c); i != std::string_view::npos) {
    out += kMeanings[i];
    return;
  }
  if (c != 'u') fail_at(begin, "an unknown escape in a string");
  std::uint32_t character = code_unit();
  const bool high_surrogate = character >= 0xD800 && character < 0xDC00;
  if (high_surrogate && text_.substr(cursor_, 2) == "\\u") {
    cursor_ += 2;
    const std::uint32_t low = code_unit();
    if (low < 0xDC00 || low >= 0xE000) fail_at(begin, "half of a surrogate pair");
    character = 0x10000 + ((character - 0xD800) << 10) + (low - 0xDC00);
  } else if (character >= 0xD800 && character < 0xE000) {
    fail_at(begin, "half of a surrogate pair");
  }
  append_utf8(out, character);
}

// The four digits of \uXXXX.
std::uint32_t JsonReader::code_unit() {
  const std::string_view digits = text_.substr(cursor_, 4);
  std::uint32_t unit = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), unit, 16).ptr;
  if (digits.size() < 4 || end != digits.data() + 4) fail_at(cursor_, "expected four hexadecimal digits");
  cursor_ += 4;
  return unit;
}

bool JsonReader::boolean() {
  skip_space();
  token_ = cursor_;
  for (const std::string_view word : {"true", "false"}) {
    if (text_.substr(cursor_, word.size()) != word) continue;
    cursor_ += word.size();
    return word == "true";
  }
  fail("expected true or false, found " + found());
}

bool JsonReader::at_digit() const { return cursor_ < text_.size() && is_digit(text_[cursor_]); }

void JsonReader::skip_digits() {
  if (!at_digit()) fail_at(cursor_, "expected a digit, found " + found());
  while (at_digit()) ++cursor_;
}

std::string_view JsonReader::number() {
  skip_space();
  token_ = cursor_;
  if (!at_digit() && text_.substr(cursor_, 1) != "-") fail("expected an integer, found " + found());
  if (text_[cursor_] == '-') ++cursor_;
  const std::size_t first_digit = cursor_;
  skip_digits();
  if (text_[first_digit] == '0' && cursor_ - first_digit > 1) fail("a number that begins with 0");
  return text_.substr(token_, cursor_ - token_);
}

std::int64_t JsonReader::integer() {
  const std::string_view digits = number();
  if (cursor_ < text_.size() && std::string_view(".eE").find(text_[cursor_]) != std::string_view::npos) {
    fail("expected an integer, without point or exponent");
  }
  std::int64_t value = 0;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ec != std::errc{}) {
    fail("an integer beyond 64 bits");
  }
  return value;
}

std::int64_t JsonReader::size() {
  const std::int64_t value = integer();
  if (value < 0) fail("negative: " + std::to_string(value));
  return value;
}

std::uint32_t JsonReader::id() {
  const std::int64_t value = size();
  if (value >= std::numeric_limits<std::uint32_t>::max()) fail("too large for an index: " + std::to_string(value));
  return static_cast<std::uint32_t>(value);
}

void JsonReader::format(std::string_view expected) {
  const std::string found_format = string();
  if (found_format == expected) return;
  fail("expected '" + std::string(expected) + "', found '" + found_format + "'");
}

void JsonReader::version(std::int64_t expected) {
  const std::int64_t found_version = integer();
  if (found_version == expected) return;
  fail("version " + std::to_string(found_version) + " is unknown; this reader knows " + std::to_string(expected));
}

std::size_t JsonReader::key(std::span<const std::string_view> known, std::uint64_t& seen) {
  const std::string name = string();
  const auto i = static_cast<std::size_t>(std::ranges::find(known, name) - known.begin());
  if (i == known.size()) fail("unknown key '" + name + "'; known are " + quoted_list(known));
  const std::uint64_t bit = std::uint64_t{1} << i;
  if ((seen & bit) != 0) fail("key '" + name + "' comes twice");
  seen |= bit;
  if (!skip(':')) fail_at(cursor_, "expected ':', found " + found());
  return i;
}

void JsonReader::check_required(std::string_view key, bool required, bool seen) const {
  if (required && !seen) fail("key '" + std::string(key) + "' is missing");
}

void JsonReader::fail_choice(std::span<const std::string_view> choices) const {
  fail("must be one of " + quoted_list(choices));
}

}  // namespace reprise::detail
