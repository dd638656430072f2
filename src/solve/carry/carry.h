// Plans that store and fetch, made from plans that do not: every plan in the front that needs more than the budget is a
// base (placing.h).
//
// What is tried does not depend on the link, except that no pace far above its rates is, and not at all on the host's
// budget. A given plan is never slower on a faster link. So more bandwidth or a larger host budget never gives a slower
// plan. Tested by tests/property/carry_test.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "reprise/solve.h"
#include "simulate/simulator.h"
#include "solve/carry/placing.h"
#include "solve/front.h"
#include "solve/problem.h"

namespace reprise::detail {

class CarrySearch {
 public:
  // All must outlive it.
  CarrySearch(const Problem& problem, const SolveOptions& options, Front& front);

  // Adds plans within the budget and the host's budget to the front. If it searches, more bases are made for links
  // (relieved.h).
  void run(bool searches);

 private:
  [[nodiscard]] std::int64_t best_ns() const;
  void carry(const Plan& base);
  void carry_at(const Plan& base, const Link& pace);
  [[nodiscard]] const Plan* best_base(const Link& pace);
  void find_paces();
  [[nodiscard]] Link pace(double bytes_per_s) const;

  const Problem& problem_;
  const SolveOptions& options_;
  Front& front_;
  Simulator simulator_;
  std::int64_t least_bytes_ = 0;
  std::int64_t latency_ns_ = 0;
  std::vector<Link> paces_;
  std::vector<Plan> bases_;  // those of the front
  std::vector<std::pair<const Plan*, std::unique_ptr<Placing>>> selected_;
};

}  // namespace reprise::detail
