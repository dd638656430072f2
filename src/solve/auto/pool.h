// Choices not beaten by any other in peak and time, and the work spent on finding them.
#pragma once

#include <cstdint>
#include <map>

#include "solve/auto/evaluator.h"

namespace reprise::detail {

class Pool {
 public:
  struct Entry {
    std::int64_t time_ns;
    Choice choice;
  };

  // Adds the choice if it is not beaten, and removes those that it beats. Returns whether it was added.
  bool offer(const Cost& cost, const Choice& choice);
  // Whether the pool has a choice that is as good in both, or there is no cost.
  [[nodiscard]] bool is_beaten(const Cost& cost) const;
  // The fastest within the budget, or end().
  [[nodiscard]] std::map<std::int64_t, Entry>::const_iterator fastest(std::int64_t budget_bytes) const;
  [[nodiscard]] const std::map<std::int64_t, Entry>& entries() const { return entries_; }  // by peak bytes
  [[nodiscard]] std::size_t accepted() const { return accepted_; }  // offers that were not beaten, ever

 private:
  std::map<std::int64_t, Entry> entries_;
  std::size_t accepted_ = 0;
};

}  // namespace reprise::detail
