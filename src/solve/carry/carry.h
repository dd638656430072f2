// Plans that store and fetch, made from plans that do not: every plan in the front that needs more than the budget is a
// base (placing.h).
//
// What is tried does not depend on the link, except that no pace far above its rates is, and not at all on the host's
// budget. A given plan is never slower on a faster link. So more bandwidth or a larger host budget never gives a slower
// plan. Tested by tests/property/carry_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "reprise/solve.h"
#include "solve/front.h"
#include "solve/problem.h"

namespace reprise::detail {

class CarrySearch {
 public:
  // All must outlive it.
  CarrySearch(const Problem& problem, const SolveOptions& options, Front& front);

  // Adds plans within the budget and the host's budget to the front.
  void run();

 private:
  void carry(const Plan& base);
  void find_paces();

  const Problem& problem_;
  const SolveOptions& options_;
  Front& front_;
  std::int64_t least_bytes_ = 0;
  std::vector<Link> paces_;
};

}  // namespace reprise::detail
