// Describes a training step, names a peak, and prints the plan.
#include <reprise/reprise.h>

#include <cstddef>
#include <cstdio>
#include <vector>

using namespace reprise;  // NOLINT(google-build-using-namespace): an example

// Eight layers of 1 MB each; the gradient of a layer reads the layer's input.
CostedGraph eight_layers() {
  GraphBuilder step("eight layers");
  std::vector<ValueId> x = {step.arriving(1'000'000)};
  for (std::size_t i = 0; i < 8; ++i) {
    x.push_back(step.value(1'000'000));
    step.op({.name = "layer", .time_ns = 500, .inputs = {x[i]}, .outputs = {x[i + 1]}});
  }
  ValueId gradient = step.value(1'000'000);
  step.op({.name = "caller", .phase = Phase::kCaller, .inputs = {x[8]}, .outputs = {gradient}});
  for (std::size_t i = 8; i-- > 0;) {
    const ValueId next = step.value(1'000'000);
    step.op(
        {.name = "layer'", .phase = Phase::kBackward, .time_ns = 1000, .inputs = {gradient, x[i]}, .outputs = {next}});
    gradient = next;
  }
  step.output(gradient);
  return step.build();
}

int main() {
  const auto [graph, costs] = eight_layers();
  const Solution found = solve(graph, costs, {.planner = "lower-sets", .budget_bytes = parse_bytes("6MB")});
  if (!found.found()) {
    std::printf("the smallest peak is %s\n", format_bytes(found.smallest_budget_bytes).c_str());
    return 1;
  }
  for (const Action action : found.plan.actions) {
    switch (action.kind()) {
      case Action::Kind::kCompute:
      case Action::Kind::kComputeInPlace:
        std::printf("run op %zu, %s\n", index(action.op()), graph.op_name(action.op()).c_str());
        break;
      case Action::Kind::kFree:
        std::printf("free value %zu\n", index(action.value()));
        break;
      case Action::Kind::kStore:
      case Action::Kind::kFetch:
        break;  // only where the costs have a link
    }
  }
  std::printf("peak %lld bytes, %lld of %lld ns recomputed\n", static_cast<long long>(found.simulation.peak_bytes),
              static_cast<long long>(found.simulation.recompute_ns), static_cast<long long>(found.simulation.time_ns));
}
