// Chen et al.'s sqrt(n) segments, generalised to graphs as Kusumoto et al. ran it for comparison.
//
// Where one node carries everything across a cut, the graph can be divided: candidates are the lower sets with a single
// boundary node, {} and V. Walking through them by size, a cut is made whenever another 1/s of all bytes has passed,
// s = floor(sqrt(number of candidates)). On a chain of six equal nodes (7 candidates, s = 2, a cut after more than
// three): 1 2 3 4 | 5 6.
//
// In a graph with one sink such a set is a node with its ancestors, none of which feeds anything else; only these are
// looked at. No budget enters; judged by the simulator, many s are tried. O(V * (V + E)).
//
// Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory cost", 2016; DAG form: Kusumoto et al., NeurIPS
// 2019, as in their program. Tested by tests/golden (their table to the byte).
#include <algorithm>
#include <cmath>

#include "graph/lower_sets.h"
#include "solve/planner.h"

namespace reprise::detail {
namespace {

class ChenCuts {
 public:
  explicit ChenCuts(const ForwardView& view) : family_(ancestor_sets(view)) {
    for (SetId set = 0; set < family_.size(); ++set) {
      if (set == 0 || set == family_.whole() || family_.boundary(set).size() == 1) candidates_.push_back(set);
    }
    std::ranges::stable_sort(candidates_, {}, [&](SetId set) { return family_.bytes(set); });
  }

  [[nodiscard]] std::size_t num_candidates() const { return candidates_.size(); }

  // Cuts after each 1/segments of all bytes.
  [[nodiscard]] Blocks blocks(std::int64_t segments) const {
    const std::int64_t step = family_.bytes(family_.whole()) / segments;
    std::int64_t threshold = step;
    std::vector<SetId> cuts;
    for (const SetId set : candidates_) {
      const std::int64_t bytes = family_.bytes(set);
      if (set == 0 || set == family_.whole() || bytes <= threshold) continue;
      if (!cuts.empty() && !family_.subset(cuts.back(), set)) continue;  // only where there are several sinks
      cuts.push_back(set);
      if (step > 0) threshold += (bytes - threshold + step - 1) / step * step;
    }
    if (family_.whole() != 0) cuts.push_back(family_.whole());
    return family_.blocks(cuts);
  }

 private:
  LowerSetFamily family_;
  std::vector<SetId> candidates_;
};

// Numbers of segments to try: all, or where that is too many, about `count` with the same ratio between neighbours.
std::vector<std::int64_t> segment_numbers(std::size_t candidates, std::size_t count) {
  const double ratio = std::pow(static_cast<double>(candidates), 1.0 / static_cast<double>(count));
  std::vector<std::int64_t> numbers;
  for (double s = 1; s <= static_cast<double>(candidates); s = std::max(s + 1, std::ceil(s * ratio))) {
    numbers.push_back(static_cast<std::int64_t>(s));
  }
  return numbers;
}

void propose(const Problem& problem, const SolveOptions& options, const Propose& propose, Solution& solution) {
  const ChenCuts cuts(problem.view());
  solution.stats.lower_sets = cuts.num_candidates();
  const std::vector<std::int64_t> numbers = segment_numbers(cuts.num_candidates(), options.candidates);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (options.should_stop && options.should_stop()) {
      solution.status = Status::kStopped;
      solution.message =
          "stopped after " + std::to_string(i) + " of " + std::to_string(numbers.size()) + " numbers of segments";
      return;
    }
    propose(cuts.blocks(numbers[i]));
    if (options.progress) options.progress(i + 1, numbers.size());
  }
}

std::optional<Blocks> as_printed(const Problem& problem, const SolveOptions& options, Solution& solution) {
  const ChenCuts cuts(problem.view());
  solution.stats.lower_sets = cuts.num_candidates();
  const auto root = static_cast<std::int64_t>(std::sqrt(static_cast<double>(cuts.num_candidates())));
  return accept_by_formula(cuts.blocks(std::max<std::int64_t>(1, root)), problem, options, options.keep_last, solution);
}

}  // namespace

const Planner kChenPlanner{.name = "chen", .propose = propose, .as_printed = as_printed};

}  // namespace reprise::detail
