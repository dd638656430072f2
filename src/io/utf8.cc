#include "io/utf8.h"

namespace reprise::detail {
namespace {

// One row of table 3-7 of the Unicode standard: leading bytes, what the second byte may be, and the length.
struct Form {
  unsigned char lead_from, lead_to;
  unsigned char second_from, second_to;
  std::size_t length;
};

constexpr Form kForms[] = {
    {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3}, {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3},
    {0xEE, 0xEF, 0x80, 0xBF, 3}, {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4},
};

bool matches(const Form& form, std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < form.lead_from || byte(0) > form.lead_to || text.size() < form.length) return false;
  if (byte(1) < form.second_from || byte(1) > form.second_to) return false;
  for (std::size_t i = 2; i < form.length; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return false;
  }
  return true;
}

}  // namespace

std::size_t utf8_length(std::string_view text, std::size_t at) {
  if (static_cast<unsigned char>(text[at]) < 0x80) return 1;
  for (const Form& form : kForms) {
    if (matches(form, text.substr(at))) return form.length;
  }
  return 0;
}

std::size_t find_invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    if (length == 0) return at;
    at += length;
  }
  return std::string_view::npos;
}

void append_utf8(std::string& text, std::uint32_t character) {
  const auto put = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  const auto put_tail = [&](int shift) { put(0x80U | ((character >> shift) & 0x3FU)); };
  if (character < 0x80) {
    put(character);
  } else if (character < 0x800) {
    put(0xC0U | (character >> 6));
    put_tail(0);
  } else if (character < 0x10000) {
    put(0xE0U | (character >> 12));
    put_tail(6);
    put_tail(0);
  } else {
    put(0xF0U | (character >> 18));
    put_tail(12);
    put_tail(6);
    put_tail(0);
  }
}

}  // namespace reprise::detail
