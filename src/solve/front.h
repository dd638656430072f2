// The best plans seen so far: each faster than all that need less memory.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <unordered_set>
#include <utility>

#include "reprise/solve.h"
#include "simulate/simulator.h"
#include "solve/problem.h"

namespace reprise::detail {

class Front {
 public:
  struct Point {
    Simulation simulation;
    Plan plan;
    std::optional<Formula> formula;
  };

  explicit Front(const Problem& problem) : problem_(problem), simulator_(problem.step(), problem.costs()) {}

  // The step as it is, without recomputation.
  void add_plain() { add_blocks(problem_.one_block(), /*keep_last=*/true); }
  // Expands the blocks with the last one kept and recomputed, and keeps what is not beaten.
  void add(const Blocks& blocks);
  // Runs of ops in any number and order; reruns that nobody reads are left out.
  void add(std::span<const OpId> runs, const std::optional<Formula>& formula);

  // A plan that is complete.
  void add(Plan plan) { add_plan(std::move(plan), std::nullopt); }
  // A plan that stores and fetches; it is left out if it takes more of the host's memory.
  void add_carrying(Plan plan, std::int64_t host_budget_bytes);

  [[nodiscard]] const std::map<std::int64_t, Point>& points() const { return points_; }  // by peak bytes
  // The fastest within the budget, or nothing.
  [[nodiscard]] const Point* fastest(std::int64_t budget_bytes) const;
  [[nodiscard]] std::size_t simulated() const { return simulated_; }

 private:
  void add_blocks(const Blocks& blocks, bool keep_last);
  void add_plan(Plan plan, const std::optional<Formula>& formula);
  void add_if_not_beaten(const Simulation& result, Plan plan, const std::optional<Formula>& formula);

  const Problem& problem_;
  Simulator simulator_;
  std::map<std::int64_t, Point> points_;
  std::unordered_set<std::uint64_t> seen_;
  std::size_t simulated_ = 0;
};

}  // namespace reprise::detail
