// The smallest arena for a handful of buffers, by trying everything.
#pragma once

#include <cstdint>
#include <vector>

#include "reprise/place.h"

namespace reprise::test {

// With what outlives stacked down from the top, or anywhere. Sizes are taken as they are, without an alignment.
// O(n! n^2) for n buffers.
[[nodiscard]] std::int64_t least_arena(const std::vector<Buffer>& buffers, bool outliving_on_top);

}  // namespace reprise::test
