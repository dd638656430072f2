// What a front end delivers: a program, and what it knows about the program's calls.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/program/program.h"

namespace reprise {

// The layout of a result in its memory.
struct Layout {
  Geometry geometry;
  std::int64_t storage_bytes = 0;  // as the allocator counts them
  at::DeviceType device = at::kCPU;

  friend bool operator==(const Layout&, const Layout&) = default;
};
using ResultLayouts = std::vector<std::optional<Layout>>;  // nullopt: undefined
// Layouts by a text that tells calls apart before their results are known.
using KnownLayouts = std::map<std::string, ResultLayouts>;

struct CapturedStep {
  std::shared_ptr<Program> program;
  // For calls whose layouts were guessed, the text that identifies their layouts. Empty if none was guessed.
  std::map<OpId, std::string> layout_keys{};
  // Calls that cost what another one costs: the same at another place in memory.
  std::map<OpId, OpId> alike{};
};

// Whether the program expects these layouts of the op's results.
[[nodiscard]] bool lies_as(const Program& program, OpId op, const ResultLayouts& found);

}  // namespace reprise
