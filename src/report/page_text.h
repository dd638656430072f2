// The report's page as one text, with a place for its data. The definition is written by cmake/embed_page.cmake.
#pragma once

#include <string_view>

namespace reprise::detail {

[[nodiscard]] std::string_view page_text();

}  // namespace reprise::detail
