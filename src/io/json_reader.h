// Reads JSON text into the caller's structures, guided by tables of the keys that an object may have:
//
//   constexpr JsonField<Point> kPointFields[] = {
//       {"x", [](JsonReader& in, Point& p) { p.x = in.integer(); }, kRequired},
//       {"label", [](JsonReader& in, Point& p) { p.label = in.string(); }},
//   };
//   JsonReader in(text, "point.json");
//   in.object(kPointFields, point);
//
// An unknown or repeated key is an error. Numbers are 64-bit integers: nothing is ever rounded. Every error is an
// InputError "point.json:1:7: label: expected a string, found a number".
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/json_tape.h"

namespace reprise::detail {

class JsonReader;

inline constexpr bool kRequired = true;

template <typename T>
struct JsonField {
  std::string_view key;
  void (*read)(JsonReader&, T&);
  bool required = false;
};

class JsonReader {
 public:
  // Both must outlive the reader. `source` names the text in errors, and `first_line` is the line of it where the text
  // begins. Text that is not JSON is refused at once.
  JsonReader(std::string_view text, std::string_view source, std::size_t first_line = 1);

  // Returns how many keys there were.
  template <typename T, std::size_t N>
  int object(const JsonField<T> (&fields)[N], T& into);
  // Calls element() at the start of each element, which it must read.
  template <typename Element>
  void array(Element element);

  [[nodiscard]] std::string string() { return std::string(text_of(JsonKind::kString)); }
  [[nodiscard]] bool boolean() { return take(JsonKind::kBoolean).value() != 0; }
  [[nodiscard]] std::int64_t integer() { return take(JsonKind::kInteger).value(); }
  [[nodiscard]] std::int64_t size();  // an integer, not negative
  [[nodiscard]] std::uint32_t id();   // below 2^32 - 1, which our ids use for "none"
  [[nodiscard]] bool at(JsonKind kind) const { return tape_.tokens[next_].kind() == kind; }
  void null() { take(JsonKind::kNull); }
  // One of a closed set of strings.
  template <typename Enum, std::size_t N>
  [[nodiscard]] Enum choice(const std::pair<std::string_view, Enum> (&choices)[N]);

  // The two keys that all our files have.
  void format(std::string_view expected);
  void version(std::int64_t expected);
  [[nodiscard]] std::int64_t version(std::int64_t oldest, std::int64_t newest);  // the one it is

  // Reports an error at the string or number that was read last.
  [[noreturn]] void fail(const std::string& what) const;

 private:
  struct PathPart {
    std::string_view key{};  // empty: an element of an array
    std::size_t index = 0;
  };

  [[noreturn]] void fail_at(std::size_t offset, const std::string& what) const;
  [[nodiscard]] std::string path() const;

  // Takes the next token, which must be of this kind.
  const JsonToken& take(JsonKind kind);
  [[nodiscard]] bool take_end();                          // takes the next token if it ends an object or an array
  [[nodiscard]] std::string_view text_of(JsonKind kind);  // takes a key or a string

  // The part of object() that does not depend on T.
  [[nodiscard]] std::size_t key(std::span<const std::string_view> known, std::uint64_t& seen);
  void check_required(std::string_view key, bool required, bool seen) const;
  [[noreturn]] void fail_choice(std::span<const std::string_view> choices) const;

  std::string_view text_;
  std::string_view source_;
  std::size_t first_line_;
  JsonTape tape_;
  std::size_t next_ = 0;           // token
  std::size_t strings_taken_ = 0;  // how much of tape_.strings
  std::size_t blamed_ = 0;         // token
  std::vector<PathPart> path_;
};

template <typename T, std::size_t N>
int JsonReader::object(const JsonField<T> (&fields)[N], T& into) {
  static_assert(N <= 64, "keys seen are the bits of one word");
  std::string_view known[N];
  for (std::size_t i = 0; i < N; ++i) known[i] = fields[i].key;
  std::uint64_t seen = 0;

  const std::size_t begin = next_;
  take(JsonKind::kObject);
  while (!take_end()) {
    const std::size_t i = key(known, seen);
    path_.push_back({.key = known[i]});
    fields[i].read(*this, into);
    path_.pop_back();
  }
  blamed_ = begin;
  for (std::size_t i = 0; i < N; ++i) check_required(known[i], fields[i].required, ((seen >> i) & 1) != 0);
  return std::popcount(seen);
}

template <typename Element>
void JsonReader::array(Element element) {
  take(JsonKind::kArray);
  path_.push_back({.index = 0});
  for (; !take_end(); ++path_.back().index) element();
  path_.pop_back();
}

template <typename Enum, std::size_t N>
Enum JsonReader::choice(const std::pair<std::string_view, Enum> (&choices)[N]) {
  const std::string_view text = text_of(JsonKind::kString);
  std::string_view names[N];
  for (std::size_t i = 0; i < N; ++i) {
    if (text == choices[i].first) return choices[i].second;
    names[i] = choices[i].first;
  }
  fail_choice(names);
}

}  // namespace reprise::detail
