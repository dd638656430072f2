// Reads graphs and plans from text and writes them (docs/formats.md). Readers accept any bytes and throw InputError,
// with the place and the reason, if these are not in the format; they never allocate more than a small multiple of the
// text's size. Writers throw InputError if a name is not UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "reprise/costs.h"
#include "reprise/graph.h"
#include "reprise/place.h"
#include "reprise/plan.h"
#include "reprise/simulate.h"

namespace reprise {

// `source` names the text in errors; it is usually a file name.
[[nodiscard]] CostedGraph parse_graph(std::string_view text, std::string_view source);
[[nodiscard]] std::string format_graph(const Graph& graph, const Costs& costs);

struct PlanFile {
  std::string graph;  // name of the graph the plan was made for
  std::size_t ops = 0;
  std::size_t values = 0;
  std::string planner;
  std::int64_t budget_bytes = 0;  // 0: no budget was given
  Simulation simulation;
  Plan plan;
  std::optional<Placement> placement{};  // where it all lies, if that was asked for
  std::optional<Link> link{};            // what its time was simulated with, if it copies to the host and back

  friend bool operator==(const PlanFile&, const PlanFile&) = default;
};
[[nodiscard]] PlanFile parse_plan(std::string_view text, std::string_view source);
[[nodiscard]] std::string format_plan(const PlanFile& file);

// The text format of Kusumoto et al.'s released program: variables without a producer are inputs and do not become
// values; forward functions make up the graph; functions named Conv* take time 10, all others 1.
[[nodiscard]] CostedGraph parse_authors_text(std::string_view text, std::string_view source);

// A log of the simulator that Kirisame et al. released with "Dynamic Tensor Rematerialization": lines of JSON
// (docs/formats.md).
[[nodiscard]] CostedGraph parse_dtr_log(std::string_view text, std::string_view source);

// "-" is the standard input or output. A file is written completely or not at all.
[[nodiscard]] std::string read_text(const std::filesystem::path& path);
void write_text(const std::filesystem::path& path, std::string_view text);

// Accepts "6GiB", "500MB", "1.5 GB" and "4096"; throws InputError for anything else.
[[nodiscard]] std::int64_t parse_bytes(std::string_view text);
[[nodiscard]] std::string format_bytes(std::int64_t bytes);  // "5.86 GiB"

}  // namespace reprise
