// The plans for the networks of data/papers must be those of tests/golden/expected.json. To write that file again, run
//
//   UPDATE_GOLDEN=1 build/release/tests/golden/golden_test
//
// and then read the diff. Each line is one question and its answer. peak_bytes, time and overhead are the simulator's;
// `formula` is what the papers' formulas say about the same sequence.
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "golden/papers_graph.h"
#include "reprise/solve.h"

namespace reprise::test {
namespace {

const std::string kExpected = std::string(REPRISE_SOURCE_DIR) + "/tests/golden/expected.json";

std::string name(Objective objective) {
  switch (objective) {
    case Objective::kAny:
      return "any";
    case Objective::kTime:
      return "time";
    case Objective::kMaxOverhead:
      return "max-overhead";
    case Objective::kMinCache:
      return "min-cache";
  }
  return "";
}

std::string line(const std::string& network, const SolveOptions& options, const Solution& found) {
  std::ostringstream out;
  out << R"({"graph":")" << network << R"(","planner":")" << options.planner << R"(","objective":")"
      << name(options.objective) << R"(","judge":")" << (options.judge == Judge::kFormula ? "formula" : "simulated")
      << R"(","budget_bytes":)" << found.budget_bytes << R"(,"found":)" << (found.found() ? "true" : "false")
      << R"(,"peak_bytes":)" << found.simulation.peak_bytes << R"(,"time":)" << found.simulation.time_ns
      << R"(,"overhead":)" << found.simulation.recompute_ns;
  if (found.formula) {
    out << R"(,"formula":{"peak_bytes":)" << found.formula->peak_bytes << R"(,"overhead":)" << found.formula->overhead
        << R"(,"cached_bytes":)" << found.formula->cached_bytes << R"(,"blocks":)" << found.formula->blocks << '}';
  }
  out << '}';
  return out.str();
}

class Questions {
 public:
  // Asks for the smallest budget, and at a budget a quarter above it.
  void ask(const std::string& network, SolveOptions options) {
    const auto [graph, costs] = papers_graph(network);
    const Solution tightest = solve(graph, costs, options);
    lines_.push_back(line(network, options, tightest));
    options.budget_bytes = tightest.budget_bytes + tightest.budget_bytes / 4;
    lines_.push_back(line(network, options, solve(graph, costs, options)));
  }

  void ask_planner(const std::string& network, const std::string& planner) {
    for (const Objective objective : {Objective::kTime, Objective::kMaxOverhead, Objective::kMinCache}) {
      ask(network, {.planner = planner, .judge = Judge::kFormula, .objective = objective});
    }
    ask(network, {.planner = planner, .judge = Judge::kSimulated});
  }

  [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

// The lines with an answer, without the commas at their ends.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with('{')) lines.push_back(line.ends_with(',') ? line.substr(0, line.size() - 1) : line);
  }
  return lines;
}

std::string text_of(const std::vector<std::string>& lines) {
  std::string text = "[\n";
  for (std::size_t i = 0; i < lines.size(); ++i) text += lines[i] + (i + 1 < lines.size() ? ",\n" : "\n");
  return text + "]\n";
}

TEST(PlansTest, AreAsExpected) {
#ifdef REPRISE_SMALL_TESTS
  GTEST_SKIP() << "minutes under a sanitizer";
#endif
  Questions questions;
  for (const std::string network : {"vgg19", "unet", "resnet50", "resnet152", "densenet161", "googlenet", "pspnet"}) {
    for (const std::string planner : {"none", "chen"}) {
      questions.ask(network, {.planner = planner, .judge = Judge::kFormula});
      questions.ask(network, {.planner = planner, .judge = Judge::kSimulated});
    }
    questions.ask_planner(network, "lower-sets-approx");
    if (network != "googlenet" && network != "pspnet") questions.ask_planner(network, "lower-sets");
  }
  for (const std::string network : {"googlenet", "pspnet"}) {  // The other objectives would take too long on these.
    questions.ask(network, {.planner = "lower-sets", .judge = Judge::kFormula, .objective = Objective::kMinCache});
  }
  if (std::getenv("UPDATE_GOLDEN") != nullptr) write_text(kExpected, text_of(questions.lines()));
  const std::vector<std::string> expected = lines_of(read_text(kExpected));
  ASSERT_EQ(questions.lines().size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(questions.lines()[i], expected[i]);
}

}  // namespace
}  // namespace reprise::test
