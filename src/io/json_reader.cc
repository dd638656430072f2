#include "io/json_reader.h"

#include <algorithm>
#include <limits>

#include "reprise/error.h"

namespace reprise::detail {
namespace {

std::string name_of(JsonKind kind) {
  constexpr const char* kNames[] = {"an object",
                                    "an array",
                                    "an end",
                                    "a key",
                                    "a string",
                                    "an integer",
                                    "true or false",
                                    "null",
                                    "a number with a point or an exponent",
                                    "an integer beyond 64 bits"};
  return kNames[static_cast<std::size_t>(kind)];
}

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

JsonReader::JsonReader(std::string_view text, std::string_view source, std::size_t first_line)
    : text_(text), source_(source), first_line_(first_line), tape_(json_tape(text)) {
  if (!tape_.error.empty()) fail_at(tape_.error_at, tape_.error);
}

void JsonReader::fail(const std::string& what) const {
  const std::size_t end_before = blamed_ == 0 ? 0 : tape_.tokens[blamed_ - 1].end();
  fail_at(text_.find_first_not_of(" \t\r\n,:", end_before), what);
}

void JsonReader::fail_at(std::size_t offset, const std::string& what) const {
  const std::string_view before = text_.substr(0, offset);
  const std::size_t line = static_cast<std::size_t>(std::ranges::count(before, '\n')) + first_line_;
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

const JsonToken& JsonReader::take(JsonKind kind) {
  blamed_ = next_;
  const JsonToken& token = tape_.tokens[next_++];
  if (token.kind() == kind) return token;
  fail("expected " + name_of(kind) + ", found " + name_of(token.kind()));
}

bool JsonReader::take_end() {
  if (tape_.tokens[next_].kind() != JsonKind::kEnd) return false;
  ++next_;
  return true;
}

std::string_view JsonReader::text_of(JsonKind kind) {
  const auto length = static_cast<std::size_t>(take(kind).value());
  strings_taken_ += length;
  return std::string_view(tape_.strings).substr(strings_taken_ - length, length);
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
  const std::string found = string();
  if (found != expected) fail("expected '" + std::string(expected) + "', found '" + found + "'");
}

void JsonReader::version(std::int64_t expected) {
  const std::int64_t found = integer();
  if (found == expected) return;
  fail("version " + std::to_string(found) + " is unknown; this reader knows " + std::to_string(expected));
}

std::int64_t JsonReader::version(std::int64_t oldest, std::int64_t newest) {
  const std::int64_t found = integer();
  if (found >= oldest && found <= newest) return found;
  fail("version " + std::to_string(found) + " is unknown; this reader knows " + std::to_string(oldest) + " to " +
       std::to_string(newest));
}

std::size_t JsonReader::key(std::span<const std::string_view> known, std::uint64_t& seen) {
  const std::string name(text_of(JsonKind::kKey));
  const auto i = static_cast<std::size_t>(std::ranges::find(known, name) - known.begin());
  if (i == known.size()) fail("unknown key '" + name + "'; the known keys are " + quoted_list(known));
  const std::uint64_t bit = std::uint64_t{1} << i;
  if ((seen & bit) != 0) fail("key '" + name + "' comes twice");
  seen |= bit;
  return i;
}

void JsonReader::check_required(std::string_view key, bool required, bool seen) const {
  if (required && !seen) fail("key '" + std::string(key) + "' is missing");
}

void JsonReader::fail_choice(std::span<const std::string_view> choices) const {
  fail("must be one of " + quoted_list(choices));
}

}  // namespace reprise::detail
