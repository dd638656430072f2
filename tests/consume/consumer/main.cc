// Builds a step of two forward ops and their backward ops, plans it, and checks the answer.
#include <reprise/reprise.h>

#include <cstdio>

namespace {

reprise::CostedGraph two_layers() {
  reprise::GraphBuilder b("two layers");
  const auto x = b.arriving(10), h = b.value(100), y = b.value(1), seed = b.value(1), dh = b.value(100),
             dx = b.value(10);
  using enum reprise::Phase;
  b.op({.name = "first", .time_ns = 5, .inputs = {x}, .outputs = {h}});
  b.op({.name = "second", .time_ns = 7, .inputs = {h}, .outputs = {y}});
  b.op({.name = "caller", .phase = kCaller, .inputs = {y}, .outputs = {seed}});
  b.op({.name = "second'", .phase = kBackward, .time_ns = 7, .inputs = {seed, h}, .outputs = {dh}});
  b.op({.name = "first'", .phase = kBackward, .time_ns = 5, .inputs = {dh, x}, .outputs = {dx}});
  b.output(dx);
  return b.build();
}

}  // namespace

int main() {
  const auto [graph, costs] = two_layers();
  reprise::Plan plan;
  for (std::size_t i = 0; i < graph.num_ops(); ++i) plan.actions.push_back(reprise::Action::compute(reprise::op_id(i)));
  if (const auto violation = reprise::validate(graph, plan)) {
    std::fprintf(stderr, "%s\n", violation->message.c_str());
    return 1;
  }
  const reprise::Simulation simulation = reprise::simulate(graph, costs, plan);
  std::printf("peak_bytes %lld, time_ns %lld\n", static_cast<long long>(simulation.peak_bytes),
              static_cast<long long>(simulation.time_ns));
  return simulation.peak_bytes == 222 && simulation.time_ns == 24 ? 0 : 1;
}
