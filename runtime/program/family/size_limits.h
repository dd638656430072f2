// For which sizes a step of any size holds: what its front end decided about the symbols while it traced.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "runtime/program/family/size_table.h"

namespace reprise {

struct SizeLimits {
  struct Range {
    std::int64_t least = 0;
    std::int64_t most = std::numeric_limits<std::int64_t>::max();

    friend bool operator==(const Range&, const Range&) = default;
  };
  std::vector<Range> ranges{};                      // by symbol
  std::vector<SizeTable::Expression> conditions{};  // none of them is 0

  [[nodiscard]] bool hold_at(std::span<const std::int64_t> symbols) const;
  // With these words for the symbols: "batch[0].size(0) is from 2 to 15, and (...)".
  [[nodiscard]] std::string words(std::span<const std::string> symbols) const;
};

}  // namespace reprise
