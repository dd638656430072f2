// Files that make a second run quick: measurements and plans, shared by both languages.
//
// They lie in $REPRISE_CACHE_DIR, else in reprise/ of the user's cache folder. A file appears whole or not at all; one
// that cannot be read or written is treated as absent, with a warning.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace reprise {

[[nodiscard]] std::filesystem::path cache_folder();

// Nothing where there is no such file.
[[nodiscard]] std::optional<std::string> read_cache(const std::string& name);
// Whether it could be written.
bool write_cache(const std::string& name, std::string_view text);
// For what can be read but makes no sense.
void refuse_cache(const std::string& name, const std::string& why);

}  // namespace reprise
