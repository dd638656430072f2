// Text as lines of words and numbers; every error is an InputError "net.txt:12: expected ...".
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include "io/json_writer.h"
#include "reprise/error.h"

namespace reprise::detail {

class LineReader {
 public:
  LineReader(std::string_view text, std::string_view source) : rest_(text), source_(source) {}

  [[nodiscard]] std::string_view source() const { return source_; }
  [[nodiscard]] std::size_t line() const { return line_; }  // of what was read last, from 1

  std::string_view next(const char* expected) {
    ++line_;
    if (rest_.empty()) fail(std::string("the text ends, but ") + expected + " should follow");
    const std::size_t end = std::min(rest_.find('\n'), rest_.size());
    const std::string_view line = rest_.substr(0, end);
    if (!is_utf8(line)) fail("not UTF-8");
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    return line.substr(0, line.find_last_not_of(" \t\r") + 1);  // npos + 1 is 0: a blank line
  }

  [[nodiscard]] bool at_end() const { return rest_.empty(); }
  // Only white space may follow.
  void finish() {
    while (!rest_.empty()) {
      if (!next("").empty()) fail("expected nothing more");
    }
  }

  // The first words of the next line; the rest of the line is the last of them.
  template <std::size_t N>
  std::array<std::string_view, N> words(const char* expected) {
    std::string_view line = next(expected);
    std::array<std::string_view, N> words;
    for (std::size_t i = 0; i < N; ++i) {
      line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
      const std::size_t end = i + 1 < N ? std::min(line.find_first_of(" \t"), line.size()) : line.size();
      words[i] = line.substr(0, end);
      line.remove_prefix(end);
      if (words[i].empty()) fail(std::string("expected ") + expected);
    }
    return words;
  }

  [[nodiscard]] std::int64_t number(std::string_view word) const {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc{} || end != word.data() + word.size() || value < 0) {
      fail("expected a number that is not negative and fits into 64 bits, found '" + std::string(word) + "'");
    }
    return value;
  }

  [[noreturn]] void fail(const std::string& what) const { fail_at(line_, what); }
  [[noreturn]] void fail_at(std::size_t line, const std::string& what) const {
    throw InputError(std::string(source_) + ":" + std::to_string(line) + ": " + what);
  }

 private:
  std::string_view rest_;
  std::string_view source_;
  std::size_t line_ = 0;
};

}  // namespace reprise::detail
