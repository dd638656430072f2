// Random forward graphs of the shapes that networks have.
#pragma once

#include <string_view>
#include <vector>

#include "support/dag.h"
#include "support/random.h"

namespace reprise::test {

enum class Shape { kChain, kSeriesParallel, kUnet, kDense, kSparse };
inline constexpr Shape kShapes[] = {Shape::kChain, Shape::kSeriesParallel, Shape::kUnet, Shape::kDense, Shape::kSparse};

struct DagOptions {
  Shape shape = Shape::kChain;
  int nodes = 10;
  bool nanoseconds = false;  // times of up to some milliseconds instead of small integers
  bool zeros = false;        // some sizes and times are 0
  bool own_outputs = false;  // some gradients read outputs
};

[[nodiscard]] Dag random_dag(const DagOptions& options, Random& random);

// Another topological order of the graph, for reordered().
[[nodiscard]] std::vector<int> random_topological_order(const Dag& dag, Random& random);

// `count` graphs from one seed, of all shapes, with small and large times, with and without zeros and gradients that
// read outputs.
[[nodiscard]] std::vector<Dag> assorted_dags(int count, int min_nodes, int max_nodes, std::uint64_t seed);

}  // namespace reprise::test
