// Reads JSON text (RFC 8259) straight into the caller's structures, led by tables of the keys an object may have:
//
//   constexpr JsonField<Point> kPointFields[] = {
//       {"x", [](JsonReader& in, Point& p) { p.x = in.integer(); }, kRequired},
//       {"label", [](JsonReader& in, Point& p) { p.label = in.string(); }},
//   };
//   JsonReader in(text, "point.json");
//   in.object(kPointFields, point);
//   in.finish();
//
// No document tree comes between, so that hostile text can do little: nesting goes as deep as the tables and no deeper,
// memory is what the caller keeps, a key that is unknown or repeated ends the reading. Numbers are 64-bit integers:
// nothing is ever rounded. Every error is an InputError "point.json:1:7: label: expected a string, found a number".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
  // Both must outlive the reader. `source` names the text in errors.
  JsonReader(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  template <typename T, std::size_t N>
  void object(const JsonField<T> (&fields)[N], T& into);
  // Calls element() at the start of each element, which it must read.
  template <typename Element>
  void array(Element element);

  [[nodiscard]] std::string string();
  [[nodiscard]] bool boolean();
  [[nodiscard]] std::int64_t integer();
  [[nodiscard]] std::int64_t size();  // an integer, not negative
  [[nodiscard]] std::uint32_t id();   // below 2^32 - 1, which our ids use for "none"
  // One of a closed set of strings.
  template <typename Enum, std::size_t N>
  [[nodiscard]] Enum choice(const std::pair<std::string_view, Enum> (&choices)[N]);

  // The two keys every file of ours has.
  void format(std::string_view expected);
  void version(std::int64_t expected);

  // Only white space may follow.
  void finish();

  // Blames the string or number read last.
  [[noreturn]] void fail(const std::string& what) const { fail_at(token_, what); }

 private:
  struct PathPart {
    std::string_view key{};  // empty: an element of an array
    std::size_t index = 0;
  };

  [[noreturn]] void fail_at(std::size_t offset, const std::string& what) const;
  [[nodiscard]] std::string path() const;
  [[nodiscard]] std::string found() const;  // what stands at the cursor, for errors

  void skip_space();
  [[nodiscard]] bool skip(char c);  // after white space
  void open(char bracket, const char* expected);
  void close(char bracket);
  [[nodiscard]] bool at_digit() const;
  void skip_digits();
  [[nodiscard]] std::string_view number();
  void append_plain(std::string& out);
  void append_character(std::string& out);
  void append_escape(std::string& out);
  [[nodiscard]] std::uint32_t code_unit();

  // The part of object() that does not depend on T.
  [[nodiscard]] std::size_t key(std::span<const std::string_view> known, std::uint64_t& seen);
  void check_required(std::string_view key, bool required, bool seen) const;
  [[noreturn]] void fail_choice(std::span<const std::string_view> choices) const;

  std::string_view text_;
  std::string_view source_;
  std::size_t cursor_ = 0;
  std::size_t token_ = 0;  // where the last string or number began
  std::vector<PathPart> path_;
};

template <typename T, std::size_t N>
void JsonReader::object(const JsonField<T> (&fields)[N], T& into) {
  static_assert(N <= 64, "keys seen are the bits of one word");
  std::string_view known[N];
  for (std::size_t i = 0; i < N; ++i) known[i] = fields[i].key;
  std::uint64_t seen = 0;

  open('{', "an object");
  const std::size_t begin = cursor_ - 1;
  if (!skip('}')) {
    do {
      const std::size_t i = key(known, seen);
      path_.push_back({.key = known[i]});
      fields[i].read(*this, into);
      path_.pop_back();
    } while (skip(','));
    close('}');
  }
  token_ = begin;
  for (std::size_t i = 0; i < N; ++i) check_required(known[i], fields[i].required, ((seen >> i) & 1) != 0);
}

template <typename Element>
void JsonReader::array(Element element) {
  open('[', "an array");
  if (skip(']')) return;
  path_.push_back({.index = 0});
  do {
    element();
    ++path_.back().index;
  } while (skip(','));
  path_.pop_back();
  close(']');
}

template <typename Enum, std::size_t N>
Enum JsonReader::choice(const std::pair<std::string_view, Enum> (&choices)[N]) {
  const std::string text = string();
  std::string_view names[N];
  for (std::size_t i = 0; i < N; ++i) {
    if (text == choices[i].first) return choices[i].second;
    names[i] = choices[i].first;
  }
  fail_choice(names);
}

}  // namespace reprise::detail
