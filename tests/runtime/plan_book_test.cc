// Tests the plan book: plans for budgets, and the file of what was found before.
#include "runtime/session/plan_book.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "reprise/error.h"
#include "reprise/io.h"
#include "runtime/files/cache.h"
#include "runtime/own_cache.h"

namespace reprise::test {
namespace {

namespace fs = std::filesystem;

class PlanBooks : public testing::Test {
 protected:
  PlanBooks()
      : step(parse_graph(read_text(fs::path(REPRISE_SOURCE_DIR) / "data/steps/vgg19_64.graph.json"), "vgg19_64")) {}

  [[nodiscard]] PlanBook book(PlanBook::Search search = solve) const {
    return {step.graph, step.costs, "auto", std::move(search)};
  }
  // A search that notes the budgets it is asked for.
  [[nodiscard]] PlanBook::Search counting() {
    return [this](const Graph& graph, const Costs& costs, const SolveOptions& options) {
      searches.push_back(*options.budget_bytes);
      return solve(graph, costs, options);
    };
  }
  [[nodiscard]] std::int64_t plain_peak() const {
    return solve(step.graph, step.costs, {.planner = "none"}).simulation.peak_bytes;
  }
  [[nodiscard]] bool has_none_in_no_time(const Costs& costs, std::int64_t budget) const {
    SolveOptions options{.budget_bytes = budget};
    options.should_stop = [] { return true; };
    return solve(step.graph, costs, options).plan.actions.empty();
  }

  CostedGraph step;
  std::vector<std::int64_t> searches;
};

TEST_F(PlanBooks, NeverGiveASlowerPlanForMoreBudget) {
  const std::int64_t small = plain_peak() * 8 / 10;
  const std::int64_t large = plain_peak() * 9 / 10;
  const auto answers = [&](const Graph& graph, const Costs& costs, const SolveOptions& options) {
    searches.push_back(*options.budget_bytes);
    const bool is_small = *options.budget_bytes == small;
    return solve(graph, costs, {.planner = is_small ? "auto" : "chen", .budget_bytes = is_small ? small : large});
  };
  const FoundPlan slow = book(answers).find(large, 1);
  const FoundPlan fast = book(answers).find(small, 1);
  ASSERT_GT(slow.simulation.time_ns, fast.simulation.time_ns);
  EXPECT_EQ(book(answers).find(large, 1).simulation, fast.simulation);  // The fast plan fits the large budget too.
  EXPECT_EQ(book(answers).find(large + 1, 1).simulation, fast.simulation);
  EXPECT_EQ(searches, (std::vector<std::int64_t>{large, small, large + 1}));
}

TEST_F(PlanBooks, RememberARefusalWithTheSmallestBudget) {
  const FoundPlan refused = book(counting()).find(1000, 10);
  EXPECT_FALSE(refused.found());
  EXPECT_GT(refused.smallest_budget_bytes, 1000);
  EXPECT_EQ(book(counting()).find(1000, 10).smallest_budget_bytes, refused.smallest_budget_bytes);
  EXPECT_EQ(searches.size(), 1U);
}

TEST_F(PlanBooks, SearchAgainWithMoreTimeWhereTimeRanOut) {
  const std::int64_t budget = plain_peak() * 6 / 10;
  EXPECT_FALSE(book(counting()).find(budget, 0).found());
  EXPECT_FALSE(book(counting()).find(budget, 0).found());
  EXPECT_EQ(searches.size(), 1U);  // The second call had no more time than the first.
  EXPECT_TRUE(book(counting()).find(budget, 300).found());
  EXPECT_TRUE(book(counting()).find(budget, 600).found());
  EXPECT_EQ(searches.size(), 2U);  // The second search came to its end, so more time would not help.
}

TEST_F(PlanBooks, DoNotRememberWhatWasStoppedBeforeItKnewAnything) {
  bool first = true;
  const auto search = [&](const Graph& graph, const Costs& costs, const SolveOptions& /*options*/) {
    return std::exchange(first, false) ? Solution{} : solve(graph, costs, {.planner = "none"});
  };
  EXPECT_FALSE(book(search).find(std::int64_t{1} << 40, 1).found());
  EXPECT_TRUE(book(search).find(std::int64_t{1} << 40, 1).found());
}

TEST_F(PlanBooks, HaveAPlanForTheSmallestBudgetHoweverLittleTimeThereIs) {
  const std::int64_t smallest = book().smallest_budget_bytes(10);
  ASSERT_TRUE(has_none_in_no_time(step.costs, smallest));
  for (const std::int64_t budget : {smallest, smallest + 1}) {
    EXPECT_EQ(book().find(budget, 0).simulation.peak_bytes, smallest);
  }
  EXPECT_EQ(book().find(smallest - 1, 0).smallest_budget_bytes, smallest);
  EXPECT_EQ(book().smallest_budget_bytes(0), smallest);
}

TEST_F(PlanBooks, HaveOneForTheBudgetThatARefusalNames) {
  const std::int64_t smallest = book().find(1000, 10).smallest_budget_bytes;
  ASSERT_TRUE(has_none_in_no_time(step.costs, smallest));
  EXPECT_EQ(book().find(smallest, 0).simulation.peak_bytes, smallest);
}

TEST_F(PlanBooks, RememberWhatCannotBeWrittenAllTheSame) {
  const fs::path file = cache_folder() / "file";
  std::ofstream(file) << "in the way";
  setenv("REPRISE_CACHE_DIR", file.c_str(), 1);
  const std::int64_t smallest = book().smallest_budget_bytes(10);
  EXPECT_EQ(book().find(smallest, 0).simulation.peak_bytes, smallest);
}

TEST_F(PlanBooks, KeepWhatAnotherWroteMeanwhile) {
  std::int64_t others = 0;
  const auto slow = [&](const Graph& graph, const Costs& costs, const SolveOptions& options) {
    if (others == 0) others = book().smallest_budget_bytes(10);
    return solve(graph, costs, options);
  };
  (void)book(slow).find(1000, 0);
  EXPECT_TRUE(book().find(others, 0).found());
}

TEST_F(PlanBooks, ServeTheSameStepWithOtherCosts) {
  Costs costs = step.costs;
  for (std::int64_t& time : costs.time_ns) time += 1000;
  PlanBook other(step.graph, costs, "auto");
  other.carry_over(book());  // Nothing is known yet.
  const std::int64_t smallest = book().smallest_budget_bytes(10);
  other.carry_over(book());
  ASSERT_TRUE(has_none_in_no_time(costs, smallest));
  EXPECT_EQ(other.find(smallest, 0).simulation.peak_bytes, smallest);
}

TEST_F(PlanBooks, MakeFilesThatAreWrongAnew) {
  const std::int64_t smallest = book().smallest_budget_bytes(10);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(cache_folder() / "plans")) files.push_back(entry.path());
  ASSERT_EQ(files.size(), 1U);
  const std::string good = read_text(files[0]);
  const auto ending = [&](const std::string& key, const std::string& by) {
    return good.substr(0, good.find(key)) + by;
  };
  const std::string wrongs[] = {"{}",
                                "[]",
                                "not JSON",
                                ending("\"asked\"", R"("asked":3,"plans":[]})"),
                                ending("\"plans\"", R"("plans":[]})"),
                                ending("\"actions\"", R"("actions":null}]})"),
                                ending("\"actions\"", R"("actions":["c0"]}]})"),
                                ending("\"actions\"", R"("actions":["c1073741824"]}]})")};
  for (const std::string& wrong : wrongs) {
    write_text(files[0], wrong);
    EXPECT_FALSE(book().find(smallest, 0).found()) << wrong.substr(0, 80);
  }
}

TEST_F(PlanBooks, KnowTheirPlanners) { EXPECT_THROW(PlanBook(step.graph, step.costs, "fastest"), InputError); }

}  // namespace
}  // namespace reprise::test
