#include "io/json_tape.h"

#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

namespace reprise::detail {
namespace {

using nlohmann::json;

constexpr std::size_t kDeepest = 8;  // our formats do not need more

// Feeds the characters of the text to the library and counts how many it has taken.
class Feed {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Feed(const char* next, const char*& taken) : next_(next), taken_(&taken) {}

  reference operator*() const { return *next_; }
  Feed& operator++() {
    *taken_ = ++next_;
    return *this;
  }
  bool operator==(const Feed& other) const { return next_ == other.next_; }

 private:
  const char* next_;
  const char** taken_;
};

// The library calls these in the order of the text, and stops where one returns false.
class TapeWriter {
 public:
  TapeWriter(std::string_view text, JsonTape& tape) : text_(text), taken_(text.data()), tape_(tape) {}

  void write() { json::sax_parse(Feed(text_.data(), taken_), Feed(text_.data() + text_.size(), taken_), this); }

  bool null() { return put(JsonKind::kNull); }
  bool boolean(bool value) { return put(JsonKind::kBoolean, value ? 1 : 0); }
  bool number_integer(json::number_integer_t value) { return put(JsonKind::kInteger, value); }
  bool number_unsigned(json::number_unsigned_t value) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    if (value > json::number_unsigned_t{kMost}) return put(JsonKind::kHuge);
    return put(JsonKind::kInteger, static_cast<std::int64_t>(value));
  }
  bool number_float(json::number_float_t, const json::string_t& literal) {
    return put(literal.find_first_of(".eE") == std::string::npos ? JsonKind::kHuge : JsonKind::kFraction);
  }
  bool string(const json::string_t& text) { return put_text(JsonKind::kString, text); }
  bool key(const json::string_t& text) { return put_text(JsonKind::kKey, text); }
  bool start_object(std::size_t) { return open(JsonKind::kObject); }
  bool start_array(std::size_t) { return open(JsonKind::kArray); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool binary(const json::binary_t&) { return false; }  // not in text

  bool parse_error(std::size_t taken, const std::string&, const json::exception& error) {
    constexpr int kNumberOverflow = 406;
    if (error.id == kNumberOverflow) return fail(taken, "a number beyond 64 bits");
    // "[json.exception.parse_error.101] parse error at line 1, column 2: what; last read: 'any bytes'; expected ..."
    const std::string_view message = error.what();
    const std::size_t begin = message.find(": ") + 2;
    return fail(taken, message.substr(begin, message.find("; last read: ") - begin));
  }

 private:
  [[nodiscard]] std::size_t taken() const { return static_cast<std::size_t>(taken_ - text_.data()); }

  // The error is at the last character that was taken; the library counts the end of the text as a character.
  bool fail(std::size_t taken, std::string_view what) {
    const bool at_end = taken > text_.size();
    tape_.error = at_end ? "the text ends too early; is the file complete?" : what;
    tape_.error_at = at_end ? text_.size() : taken - 1;
    return false;
  }

  bool put(JsonKind kind, std::int64_t value = 0) {
    tape_.tokens.emplace_back(kind, taken(), value);
    return true;
  }

  bool put_text(JsonKind kind, std::string_view text) {
    tape_.strings += text;
    return put(kind, static_cast<std::int64_t>(text.size()));
  }

  bool open(JsonKind kind) {
    if (++depth_ > kDeepest) return fail(taken(), "nested deeper than anything in our formats");
    return put(kind);
  }

  bool close() {
    --depth_;
    return put(JsonKind::kEnd);
  }

  std::string_view text_;
  const char* taken_;
  JsonTape& tape_;
  std::size_t depth_ = 0;
};

}  // namespace

JsonTape json_tape(std::string_view text) {
  JsonTape tape;
  // The library does not refuse these two: it skips a byte order mark and takes a zero byte for the end.
  if (text.starts_with("\xEF\xBB\xBF")) {
    tape.error = "begins with a byte order mark";
  } else if (const std::size_t at = text.find('\0'); at != std::string_view::npos) {
    tape.error = "not text: byte 0";
    tape.error_at = at;
  } else {
    TapeWriter(text, tape).write();
  }
  return tape;
}

}  // namespace reprise::detail
