// Bytes to a small graph in the papers' style, then every planner at a budget drawn from the bytes. A plan is legal,
// within the budget, simulates to what its solution says, and is not slower than with less budget; the smallest budget
// that an infeasible solution names is enough.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reprise/reprise.h"

namespace reprise {
namespace {

constexpr std::size_t kMaxNodes = 8;

class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  // 0 .. bound-1; 0 once the bytes are used up.
  std::int64_t below(std::int64_t bound) { return at_ < size_ ? data_[at_++] % bound : 0; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

Graph graph_from(Bytes& bytes) {
  GraphBuilder builder("fuzz");
  std::vector<ValueId> made;
  const auto nodes = static_cast<std::size_t>(1 + bytes.below(kMaxNodes));
  for (std::size_t i = 0; i < nodes; ++i) {
    const std::int64_t edges = bytes.below(256);
    OpSpec op{.name = "n" + std::to_string(i), .time_ns = bytes.below(16)};
    op.backward_reads = static_cast<BackwardReads>(bytes.below(3));
    for (std::size_t j = 0; j < made.size(); ++j) {
      if ((edges >> j & 1) != 0) op.inputs.push_back(made[j]);
    }
    made.push_back(builder.value(bytes.below(16)));
    op.outputs = {made.back()};
    builder.op(std::move(op));
  }
  return builder.build();
}

void require(bool condition, const char* what, std::string_view planner, const Graph& graph) {
  if (condition) return;
  std::fprintf(stderr, "%s: %s\n%s\n", std::string(planner).c_str(), what, format_graph(graph).c_str());
  std::abort();
}

Solution checked(const Graph& graph, const Graph& step, std::string_view planner, std::int64_t budget) {
  Solution solution = solve(graph, {.planner = std::string(planner), .budget_bytes = budget});
  if (!solution.found()) return solution;
  require(!validate(step, solution.plan), "the plan is not legal", planner, graph);
  require(simulate(step, solution.plan) == solution.simulation, "the simulation differs", planner, graph);
  require(solution.simulation.peak_bytes <= budget, "the budget is exceeded", planner, graph);
  return solution;
}

void try_planner(const Graph& graph, const Graph& step, std::string_view planner, std::int64_t budget) {
  const Solution tight = checked(graph, step, planner, budget);
  if (tight.found()) {
    const Solution loose = checked(graph, step, planner, budget + 8);
    require(loose.found() && loose.simulation.time_ns <= tight.simulation.time_ns, "more budget, slower", planner,
            graph);
  } else if (tight.status == Status::kInfeasible && tight.smallest_budget_bytes > 0) {
    require(checked(graph, step, planner, tight.smallest_budget_bytes).found(), "smallest budget", planner, graph);
  }
}

}  // namespace
}  // namespace reprise

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace reprise;
  Bytes bytes(data, size);
  const std::int64_t budget = bytes.below(256);
  const Graph graph = graph_from(bytes);
  const Graph step = complete_backward(graph);
  for (const std::string_view planner : planner_names()) try_planner(graph, step, planner, budget);
  return 0;
}
