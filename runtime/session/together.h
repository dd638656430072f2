// What processes that communicate within a step tell one another. All of them have to run the same plan, or none: one
// that is missing in a collective would leave the others waiting.
//
// All processes call these functions in the same order, and before anything of a step runs. Whoever fails meanwhile
// says so in the place of its next `least`, which then throws in all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace reprise {

struct Together {
  using Numbers = std::vector<std::int64_t>;

  bool is_first = true;  // the process that plans for all
  // For each number the least that any process gives; at most kMostNumbers.
  std::function<Numbers(Numbers)> least;
  // What the first process gives.
  std::function<std::string(std::string)> of_first;
  // There is nothing left to agree on, and the step runs. Returns how many times this was so.
  std::function<std::int64_t()> settled;

  static constexpr std::size_t kMostNumbers = 15;
};

}  // namespace reprise
