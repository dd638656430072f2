#include "io/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace reprise::detail {
namespace {

TEST(Utf8Test, EveryScalarValueIsOneCharacter) {
  for (std::uint32_t character = 0; character <= 0x10FFFF; ++character) {
    if (character >= 0xD800 && character < 0xE000) continue;
    std::string text;
    append_utf8(text, character);
    ASSERT_EQ(utf8_length(text, 0), text.size()) << character;
    if (text.size() > 1) {
      ASSERT_EQ(utf8_length(text.substr(0, text.size() - 1), 0), 0U) << character;
    }
  }
}

// Of all texts of two bytes, those that are UTF-8: two ASCII characters, or one character of two bytes.
TEST(Utf8Test, AcceptsTheRightNumberOfTwoByteTexts) {
  int valid = 0;
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text{static_cast<char>(first), static_cast<char>(second)};
      if (find_invalid_utf8(text) == std::string::npos) ++valid;
    }
  }
  EXPECT_EQ(valid, 128 * 128 + (0x800 - 0x80));
}

TEST(Utf8Test, FindsTheFirstInvalidByte) {
  EXPECT_EQ(find_invalid_utf8("abc"), std::string::npos);
  EXPECT_EQ(find_invalid_utf8("ab\xC3\xA9\x80"), 4U);
  EXPECT_EQ(find_invalid_utf8("\xED\xA0\x80"), 0U);       // a surrogate
  EXPECT_EQ(find_invalid_utf8("a\xF0\x8F\xBF\xBF"), 1U);  // overlong
}

}  // namespace
}  // namespace reprise::detail
