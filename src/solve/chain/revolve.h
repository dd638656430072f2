// Reversing a chain of equal stages with a fixed number of stored states, in the fewest forward runs.
//
// l stages, s states stored (one is the chain's input) and nothing else, so before the backward of a stage its input
// is computed from the nearest stored state. t(l, s) counts forward runs, without the one that saves for the backward:
//
//   t(1, s) = 0,  t(l, 1) = l (l - 1) / 2,  t(l, s) = min over 1 <= k < l of k + t(l - k, s - 1) + t(k, s)
//
// With beta(s, r) = (s + r)! / (s! r!), the longest chain that s stored states reverse running no stage more than r
// times, and r such that beta(s, r - 1) < l <= beta(s, r):
//
//   t(l, s) = r l - beta(s + 1, r - 1),
//   reached by every k from max(beta(s, r - 2), l - beta(s - 1, r)) to min(beta(s, r - 1), l - beta(s - 1, r - 1))
//
// Example: 10 stages, 3 states: beta(3, 2) = 10, so r = 2 and t = 20 - beta(4, 1) = 15; the only best first cut is k
// = 4.
//
// O(r) for t, and for every cut of the schedule, whose length is t(l, s) + 2 l.
//
// Griewank, Walther, "Algorithm 799: revolve", ACM TOMS 26(1), 2000. Tested by
// tests/unit/solve/chain/revolve_test.cc and tests/oracle/chain_schedule_test.cc.
#pragma once

#include "solve/chain/chain.h"

namespace reprise::detail {

// t(l, s); s >= 1.
[[nodiscard]] std::int64_t revolve_forward_runs(std::uint32_t stages, std::uint32_t states);

// A state is stored by kForwardKeepInput and freed by the backward of that stage.
[[nodiscard]] std::vector<ChainAction> revolve_schedule(std::uint32_t stages, std::uint32_t states);

}  // namespace reprise::detail
