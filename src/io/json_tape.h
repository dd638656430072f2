// JSON text (RFC 8259) as a flat list of its tokens, made by the JSON library and walked by JsonReader.
//
//   {"bytes":[8,64]}   becomes   kObject, kKey "bytes", kArray, kInteger 8, kInteger 64, kEnd, kEnd
//
// There is no tree in between, so hostile text can do little: nesting ends at a fixed depth, and a token takes 16
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace reprise::detail {

enum class JsonKind : std::uint8_t {
  kObject,  // its keys and values follow, then kEnd
  kArray,   // its elements follow, then kEnd
  kEnd,
  kKey,
  kString,
  kInteger,
  kBoolean,
  kNull,
  kFraction,  // a number with a point or an exponent
  kHuge,      // an integer beyond 64 bits
};

class JsonToken {
 public:
  JsonToken(JsonKind kind, std::size_t end, std::int64_t value)
      : end_and_kind_(static_cast<std::uint64_t>(end) << 8 | static_cast<std::uint64_t>(kind)), value_(value) {}

  [[nodiscard]] JsonKind kind() const { return static_cast<JsonKind>(end_and_kind_ & 0xFF); }
  // Where the token ends in the text; for a number this may be one character too far.
  [[nodiscard]] std::size_t end() const { return static_cast<std::size_t>(end_and_kind_ >> 8); }
  // The integer; 0 or 1 for a boolean; the length of a key or a string.
  [[nodiscard]] std::int64_t value() const { return value_; }

 private:
  std::uint64_t end_and_kind_;
  std::int64_t value_;
};

struct JsonTape {
  std::deque<JsonToken> tokens{};
  std::string strings{};  // all keys and strings, one after the other
  std::string error{};    // empty, or why the text was refused
  std::size_t error_at = 0;
};

[[nodiscard]] JsonTape json_tape(std::string_view text);

}  // namespace reprise::detail
