#include "io/json_writer.h"

#include <cstddef>

#include "io/utf8.h"

namespace reprise::detail {
namespace {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

void append_ascii(std::string& out, char c) {
  constexpr std::string_view kHexDigits = "0123456789abcdef";
  constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t";
  constexpr std::string_view kEscapes = "\"\\bfnrt";
  if (const std::size_t i = kEscaped.find(c); i != std::string_view::npos) {
    out += '\\';
    out += kEscapes[i];
  } else if (const auto code = static_cast<unsigned char>(c); code < 0x20) {
    out += "\\u00";
    out += kHexDigits[code >> 4];
    out += kHexDigits[code & 0xF];
  } else {
    out += c;
  }
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    if (length == 1) {
      append_ascii(out, text[at]);
    } else {
      out += length == 0 ? kReplacementCharacter : text.substr(at, length);
    }
    at += length == 0 ? 1 : length;
  }
  out += '"';
}

}  // namespace reprise::detail
