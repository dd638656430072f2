// What a front end gives: a program, and what it knows of its calls beside.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/program/program.h"

namespace reprise {

// How a result lies in its memory.
struct Layout {
  Geometry geometry;
  std::int64_t storage_bytes = 0;  // as the allocator counts them
  at::DeviceType device = at::kCPU;

  friend bool operator==(const Layout&, const Layout&) = default;
};
using ResultLayouts = std::vector<std::optional<Layout>>;  // nullopt: undefined
// By a text that tells calls apart before their results are known.
using KnownLayouts = std::map<std::string, ResultLayouts>;

struct CapturedStep {
  std::shared_ptr<Program> program;
  // Of calls whose results were laid out by a guess: by what their layouts are known. Empty: none was.
  std::map<OpId, std::string> layout_keys{};
};

// Whether the results of the op are expected to lie like this in memory.
[[nodiscard]] bool lies_as(const Program& program, OpId op, const ResultLayouts& found);

}  // namespace reprise
