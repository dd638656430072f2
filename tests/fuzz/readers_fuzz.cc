// Gives any text to every reader. The reader must refuse it with InputError, or what it has read must be the same after
// it was written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "reprise/error.h"
#include "reprise/io.h"
#include "support/costed.h"

namespace reprise {
namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

// What `read` returns, or nothing if it refuses the text.
template <typename Read>
auto accepted(Read read) -> std::optional<decltype(read())> {
  try {
    return read();
  } catch (const InputError&) {
    return std::nullopt;
  }
}

void read_graph(std::string_view text) {
  const auto graph = accepted([&] { return parse_graph(text, "fuzz"); });
  if (!graph) return;
  const std::string written = format_graph(*graph);
  require(parse_graph(written, "written") == *graph);
  require(format_graph(parse_graph(written, "written")) == written);
}

void read_plan(std::string_view text) {
  const auto plan = accepted([&] { return parse_plan(text, "fuzz"); });
  if (plan) require(parse_plan(format_plan(*plan), "written") == *plan);
}

void read_authors_text(std::string_view text) {
  const auto graph = accepted([&] { return parse_authors_text(text, "fuzz"); });
  if (graph) require(parse_graph(format_graph(*graph), "written") == *graph);
}

void read_dtr_log(std::string_view text) {
  const auto graph = accepted([&] { return parse_dtr_log(text, "fuzz"); });
  if (graph) require(parse_graph(format_graph(*graph), "written") == *graph);
}

void read_bytes(std::string_view text) {
  const auto bytes = accepted([&] { return parse_bytes(text); });
  if (!bytes) return;
  require(*bytes >= 0 && parse_bytes(std::to_string(*bytes)) == *bytes);
  require(!format_bytes(*bytes).empty());
}

}  // namespace
}  // namespace reprise

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(data, data + size);
  reprise::read_graph(text);
  reprise::read_plan(text);
  reprise::read_authors_text(text);
  reprise::read_dtr_log(text);
  reprise::read_bytes(text);
  return 0;
}
