// Turns bytes into a small forward graph or a whole training step, runs every planner under both judges, and compares
// their answers with each other and with checks that share no code with the planners:
//
//   - Every plan is legal and keeps the budget, and the simulator and the timeline agree with the solution.
//   - The exact planner is never slower than the approximate one, and never needs more memory; `none` recomputes
//   nothing.
//   - The smallest budget that a planner names is enough, and one byte less is not.
//
// A failure prints the graph as JSON. An InternalError is not caught, so it ends the run as a crash.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reprise/reprise.h"
#include "solve/planner_knobs.h"
#include "support/costed.h"
#include "support/random_step.h"

namespace reprise::test {
namespace {

constexpr std::size_t kMostInput = 512;
constexpr std::int64_t kMaxNodes = 7;
const auto kFew = knobs({.candidates = 3});
constexpr std::size_t kWork = 20'000;  // for planner `auto`

class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  // A number from 0 .. bound-1; 0 once the bytes are used up.
  std::int64_t below(std::int64_t bound) { return at_ < size_ ? data_[at_++] % bound : 0; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

// Times from small integers to large numbers of nanoseconds, so that both ways of searching are used: with a table and
// with partials.
std::int64_t time_from(Bytes& bytes) { return bytes.below(16) << (bytes.below(4) * 8); }

CostedGraph forward_from(Bytes& bytes) {
  GraphBuilder builder("fuzz");
  std::vector<ValueId> made;
  const std::int64_t nodes = 1 + bytes.below(kMaxNodes);
  for (std::int64_t i = 0; i < nodes; ++i) {
    const std::int64_t edges = bytes.below(256);
    OpSpec op{.name = "n" + std::to_string(i), .time_ns = time_from(bytes)};
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

CostedGraph graph_from(Bytes& bytes) {
  if (bytes.below(2) == 0) return forward_from(bytes);
  const StepOptions options{.forward_ops = static_cast<int>(1 + bytes.below(8)),
                            .backward_ops = static_cast<int>(bytes.below(9))};
  return random_step(options, [&](std::int64_t bound) { return bytes.below(bound); });
}

struct Question {
  std::int64_t budget;  // how many bytes above the smallest budget
  Objective objective;
  bool keep_last;
};

class Check {
 public:
  Check(const CostedGraph& graph, Question question)
      : graph_(graph), step_(graph.graph.forward_only() ? complete_backward(graph) : graph), question_(question) {}

  void run() {
    const Solution plain = check({.planner = "none"});
    require(plain.simulation.recompute_ns == 0, "none recomputes", plain);
    compare_by_formula();
    for (const std::string_view name : planner_names()) {
      if (name.starts_with("lower-sets")) continue;  // compare_by_formula and compare_simulated check these.
      check_if_found({.planner = std::string(name), .judge = Judge::kFormula, .work = kWork});
      check_if_found({.planner = std::string(name), .judge = Judge::kSimulated, .work = kWork});
    }
    compare_simulated(plain);
  }

 private:
  void require(bool condition, const char* what, const Solution& solution) const {
    if (condition) return;
    std::fprintf(stderr, "%s at budget %lld: %s\n%s\n", solution.planner.c_str(),
                 static_cast<long long>(solution.budget_bytes), what, format_graph(graph_).c_str());
    std::abort();
  }

  // Asks for the smallest budget, then one byte below it, then at the budget of the question, whose answer it returns.
  Solution check(SolveOptions options) const {
    options.knobs = kFew;
    const Solution tightest = answer(options);
    require(tightest.found(), "nothing at the smallest budget", tightest);
    options.budget_bytes = tightest.budget_bytes - 1;
    if (tightest.budget_bytes > 0) require(!answer(options).found(), "something below the smallest budget", tightest);
    options.budget_bytes = tightest.budget_bytes + question_.budget;
    Solution found = answer(options);
    require(found.found(), "nothing above the smallest budget", found);
    return found;
  }

  // Checks only if there is a plan, because not every planner accepts every graph.
  void check_if_found(const SolveOptions& options) const {
    if (answer(options).found()) check(options);
  }

  Solution answer(const SolveOptions& options) const {
    Solution found = solve(graph_, options);
    if (!found.found()) return found;
    require(!validate(step_.graph, found.plan), "the plan is not legal", found);
    require(simulate(step_, found.plan) == found.simulation, "the simulation differs", found);
    require(timeline(step_, found.plan).total == found.simulation, "the timeline differs", found);
    const bool simulated = options.judge == Judge::kSimulated;
    const std::int64_t peak = simulated ? found.simulation.peak_bytes : found.formula->peak_bytes;
    require(peak <= found.budget_bytes, "the budget is exceeded", found);
    return found;
  }

  void compare_by_formula() const {
    const Objective objective = question_.objective;
    SolveOptions options{.judge = Judge::kFormula, .objective = objective, .keep_last = question_.keep_last};
    options.planner = "lower-sets-approx";
    const Solution rough = check(options);
    options.planner = "lower-sets";
    check(options);
    options.budget_bytes = rough.budget_bytes;
    const Solution exact = answer(options);
    require(exact.found(), "the approximate planner alone finds something", exact);
    const Formula& a = *exact.formula;
    const Formula& b = *rough.formula;
    require(objective != Objective::kTime || a.overhead <= b.overhead, "more overhead than approximate", exact);
    require(objective != Objective::kMaxOverhead || a.overhead >= b.overhead, "less overhead than approximate", exact);
    require(objective != Objective::kMinCache || a.cached_bytes <= b.cached_bytes, "caches more than approximate",
            exact);
    options.knobs =
        knobs({.prunings = {.memory_bound = false, .time_bound = false, .incumbent = false, .table = false}});
    require(answer(options).formula->overhead == a.overhead, "another overhead without prunings", exact);
  }

  void compare_simulated(const Solution& plain) const {
    const Solution rough = check({.planner = "lower-sets-approx"});
    const Solution exact = check({.planner = "lower-sets"});
    const std::int64_t least = exact.budget_bytes - question_.budget;
    require(least <= rough.budget_bytes - question_.budget, "needs more memory than approximate", exact);
    require(least <= plain.simulation.peak_bytes, "needs more memory than none", exact);
    SolveOptions options{.planner = "lower-sets", .budget_bytes = rough.budget_bytes, .knobs = kFew};
    const Solution again = answer(options);
    require(again.found() && again.simulation.time_ns <= rough.simulation.time_ns, "slower than approximate", again);
    options.budget_bytes = plain.simulation.peak_bytes;
    require(answer(options).simulation.recompute_ns == 0, "recomputes where it need not", again);
  }

  const CostedGraph& graph_;
  CostedGraph step_;
  Question question_;
};

}  // namespace
}  // namespace reprise::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace reprise;
  using namespace reprise::test;
  if (size > kMostInput) return -1;
  Bytes bytes(data, size);
  const Question question{.budget = bytes.below(64),
                          .objective = static_cast<Objective>(1 + bytes.below(3)),
                          .keep_last = bytes.below(2) != 0};
  const CostedGraph graph = graph_from(bytes);
  Check(graph, question).run();
  return 0;
}
