// Least recomputation on a chain within a memory budget, every dropped tensor computed again once.
//
// Memory is that of dynamic_chain.h. The plan of least peak drops more than it must; here the budget B is given and the
// recomputed time is to be least.
//
// A partial (a, w) at checkpoint i: the checkpoints up to i hold a bytes, and what lies between them takes time w to
// run again. From i to j, with f_k the forward time of layer k:
//
//   allowed if a + U(i, j) <= B;   new partial (a + d_j, w + f_(i+1) + .. + f_(j-1));   at the end a + base <= B
//
// A partial is dropped if another at the same place has neither more bytes nor more time. Example, sizes 1 1 1 1, base
// 1, B = 4: keeping both inner tensors takes 3 + 2 = 5, keeping y_1 alone 2 + 3, keeping y_2 alone max(1 + 3, 2 + 2) =
// 4; layer 1 runs again.
//
// Exact as long as the partials stay below a limit. Beyond it the search starts over with a rounded up to units: the
// plan still keeps the budget, but a better one may exist, and the answer says so. O(n^2 * partials per place); with
// units O(n^2 * units).
//
// The problem and method are ours, on the objective of Hong et al. 2025. Tested by
// tests/unit/solve/chain/budget_chain_test.cc and tests/oracle/chain_budget_test.cc (all subsets).
#pragma once

#include <optional>

#include "solve/chain/chain.h"

namespace reprise::detail {

struct BudgetAnswer {
  std::int64_t recompute_time = 0;
  std::int64_t peak_bytes = 0;
  Checkpoints checkpoints{};
  bool rounded = false;  // the limit of partials was reached: perhaps not the least
};

struct BudgetLimits {
  std::size_t most_partials = std::size_t{1} << 20;
  std::int64_t units = 500;
};

// `times` are f_1 .. f_n. Returns nothing if even the least peak exceeds the budget.
[[nodiscard]] std::optional<BudgetAnswer> least_recomputation(ByteSpan sizes, std::span<const std::int64_t> times,
                                                              std::int64_t base_bytes, std::int64_t budget_bytes,
                                                              const BudgetLimits& limits = {});

}  // namespace reprise::detail
