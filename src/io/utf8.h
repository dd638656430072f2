// UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace reprise::detail {

// Bytes of the character that begins at `at`, or 0 where none does. REQUIRES: at < text.size().
[[nodiscard]] std::size_t utf8_length(std::string_view text, std::size_t at);

// Offset of the first byte that belongs to no character, or npos.
[[nodiscard]] std::size_t find_invalid_utf8(std::string_view text);

// REQUIRES: `character` is a Unicode scalar value.
void append_utf8(std::string& text, std::uint32_t character);

}  // namespace reprise::detail
