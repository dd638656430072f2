// Text to graphs and plans, and back (docs/formats.md). Readers take anything and throw InputError with the place and
// the reason; they never allocate more than a small multiple of the text's size. Writers throw it where a name is not
// UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "reprise/costs.h"
#include "reprise/graph.h"
#include "reprise/plan.h"
#include "reprise/simulate.h"

namespace reprise {

// `source` names the text in errors: a file name, usually.
[[nodiscard]] CostedGraph parse_graph(std::string_view text, std::string_view source);
[[nodiscard]] std::string format_graph(const Graph& graph, const Costs& costs);

struct PlanFile {
  std::string graph;  // name of the graph the plan was made for
  std::size_t ops = 0;
  std::size_t values = 0;
  std::string planner;
  std::int64_t budget_bytes = 0;  // 0: none was given
  Simulation simulation;
  Plan plan;

  friend bool operator==(const PlanFile&, const PlanFile&) = default;
};
[[nodiscard]] PlanFile parse_plan(std::string_view text, std::string_view source);
[[nodiscard]] std::string format_plan(const PlanFile& file);

// The text format of Kusumoto et al.'s released program: variables without a producer are inputs and become no
// values; forward functions give the graph; functions named Conv* take time 10, all others 1.
[[nodiscard]] CostedGraph parse_authors_text(std::string_view text, std::string_view source);

// "-" is the standard input or output. A file appears whole or not at all.
[[nodiscard]] std::string read_text(const std::filesystem::path& path);
void write_text(const std::filesystem::path& path, std::string_view text);

// "6GiB", "500MB", "1.5 GB", "4096"; throws InputError.
[[nodiscard]] std::int64_t parse_bytes(std::string_view text);
[[nodiscard]] std::string format_bytes(std::int64_t bytes);  // "5.86 GiB"

}  // namespace reprise
