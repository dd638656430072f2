// Files that make a second run quick: measurements and plans, shared by both languages.
//
// They lie in $REPRISE_CACHE_DIR, or, if it is not set, in reprise/ of the user's cache folder. A file is written
// completely or not at all; a file that cannot be read or written is treated as absent, with a warning.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace reprise {

[[nodiscard]] std::filesystem::path cache_folder();

// Returns nothing if there is no such file.
[[nodiscard]] std::optional<std::string> read_cache(const std::string& name);
// Returns whether the file could be written.
bool write_cache(const std::string& name, std::string_view text);
// Warns of a file that can be read but makes no sense.
void refuse_cache(const std::string& name, const std::string& why);

}  // namespace reprise
