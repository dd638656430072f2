#include "runtime/files/cache.h"

#include <cstdlib>
#include <exception>
#include <system_error>

#include "reprise/io.h"
#include "runtime/messages.h"

namespace reprise {
namespace {

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

}  // namespace

std::filesystem::path cache_folder() {
  if (const char* named = variable("REPRISE_CACHE_DIR")) return named;
  if (const char* caches = variable("XDG_CACHE_HOME")) return std::filesystem::path(caches) / "reprise";
  const char* home = variable("HOME");
  return std::filesystem::path(home == nullptr ? "." : home) / ".cache" / "reprise";
}

std::optional<std::string> read_cache(const std::string& name) {
  const std::filesystem::path path = cache_folder() / name;
  try {
    if (!std::filesystem::exists(path)) return std::nullopt;
    return read_text(path);
  } catch (const std::exception& error) {
    refuse_cache(name, error.what());
    return std::nullopt;
  }
}

bool write_cache(const std::string& name, std::string_view text) {
  const std::filesystem::path path = cache_folder() / name;
  try {
    std::filesystem::create_directories(path.parent_path());
    write_text(path, text);
    return true;
  } catch (const std::exception& error) {
    log_line(Severity::kWarning,
             "cannot write " + path.string() + " (" + error.what() + "): the next run will not find it");
    return false;
  }
}

void refuse_cache(const std::string& name, const std::string& why) {
  log_line(Severity::kWarning,
           "cannot use " + (cache_folder() / name).string() + " (" + why + "): it will be made anew");
}

}  // namespace reprise
