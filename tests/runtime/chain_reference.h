// A slow search for the chain of find_chain (runtime/program/slices/chain.h): it looks at everything again after each
// call that leaves.
#pragma once

#include <optional>
#include <set>

#include "runtime/program/program.h"
#include "runtime/program/slices/chain.h"

namespace reprise::test {

[[nodiscard]] std::optional<Chain> slowly_found_chain(const Program& program, Sums sums, const std::set<OpId>& never);

}  // namespace reprise::test
