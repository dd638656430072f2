// Reads and writes whole files.
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "reprise/error.h"
#include "reprise/io.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

[[noreturn]] void fail(const char* verb, const fs::path& path, std::error_code error) {
  throw InputError(std::string("cannot ") + verb + " '" + path.string() + "': " + error.message());
}

std::error_code last_error() { return {errno, std::generic_category()}; }

std::string read_all(std::FILE* file, const fs::path& path) {
  std::string text;
  std::array<char, 1 << 16> chunk;
  while (const std::size_t count = std::fread(chunk.data(), 1, chunk.size(), file)) text.append(chunk.data(), count);
  if (std::ferror(file) != 0) fail("read", path, last_error());
  return text;
}

void write_all(std::FILE* file, std::string_view text, const fs::path& path) {
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (!written || std::fflush(file) != 0) fail("write", path, last_error());
}

// A new file beside `path`; several writers never share one.
std::pair<File, fs::path> open_temporary(const fs::path& path) {
  constexpr int kAttempts = 1000;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    fs::path temporary = path;
    temporary += ".tmp" + std::to_string(attempt);
    if (File file{std::fopen(temporary.c_str(), "wbx")}) return {std::move(file), std::move(temporary)};
    if (errno != EEXIST) break;
  }
  fail("write", path, last_error());
}

void write_and_rename(const fs::path& path, std::string_view text) {
  auto [file, temporary] = open_temporary(path);
  std::error_code error;
  try {
    write_all(file.get(), text, path);
    if (std::fclose(file.release()) != 0) fail("write", path, last_error());
    fs::rename(temporary, path, error);
    if (error) fail("write", path, error);
  } catch (...) {
    fs::remove(temporary, error);
    throw;
  }
}

}  // namespace

std::string read_text(const fs::path& path) {
  if (path == "-") return read_all(stdin, "standard input");
  const File file{std::fopen(path.c_str(), "rb")};
  if (!file) fail("read", path, last_error());
  return read_all(file.get(), path);
}

void write_text(const fs::path& path, std::string_view text) {
  if (path == "-") return write_all(stdout, text, "standard output");
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) {  // a device or a pipe is written to, never replaced
    const File file{std::fopen(path.c_str(), "wb")};
    if (!file) fail("write", path, last_error());
    return write_all(file.get(), text, path);
  }
  write_and_rename(fs::is_symlink(path, ignored) ? fs::weakly_canonical(path) : path, text);
}

}  // namespace reprise
