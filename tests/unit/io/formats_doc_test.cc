// The examples in docs/formats.md are exactly what the library writes, and the plan there is one for the graph there.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reprise/io.h"
#include "reprise/place.h"
#include "reprise/simulate.h"
#include "reprise/validate.h"
#include "support/costed.h"

namespace reprise {
namespace {

std::vector<std::string> examples() {
  const std::string text = read_text(REPRISE_SOURCE_DIR "/docs/formats.md");
  const std::string begin = "```json\n";
  std::vector<std::string> found;
  for (std::size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at)) {
    at += begin.size();
    found.push_back(text.substr(at, text.find("```", at) - at));
  }
  return found;
}

TEST(FormatsDocTest, ExamplesAreWhatWeWrite) {
  const std::vector<std::string> files = examples();
  ASSERT_GE(files.size(), 2U);
  EXPECT_EQ(format_graph(parse_graph(files[0], "docs/formats.md")), files[0]);
  EXPECT_EQ(format_plan(parse_plan(files[1], "docs/formats.md")), files[1]);
}

TEST(FormatsDocTest, ThePlanIsLegalAndCostsWhatItSays) {
  const std::vector<std::string> files = examples();
  ASSERT_GE(files.size(), 2U);
  const auto [graph, costs] = parse_graph(files[0], "docs/formats.md");
  const PlanFile file = parse_plan(files[1], "docs/formats.md");
  EXPECT_EQ(file.graph, graph.name());
  EXPECT_EQ(file.ops, graph.num_ops());
  EXPECT_EQ(file.values, graph.num_values());
  const auto violation = validate(graph, file.plan);
  ASSERT_FALSE(violation) << violation->message;
  EXPECT_EQ(simulate(graph, costs, file.plan), file.simulation);
  EXPECT_LE(file.simulation.peak_bytes, file.budget_bytes);
}

// The arena of the second example.
TEST(FormatsDocTest, TheAddressesAreThoseOfThePlan) {
  const std::vector<std::string> files = examples();
  ASSERT_GE(files.size(), 2U);
  const auto [graph, costs] = parse_graph(files[0], "docs/formats.md");
  const std::string text = read_text(REPRISE_SOURCE_DIR "/docs/formats.md");
  const std::size_t begin = text.find("\"arena\":{");
  ASSERT_NE(begin, std::string::npos);
  const std::string arena = text.substr(begin, text.find("```", begin) - begin);
  std::string plan = files[1];
  plan.replace(plan.find("\"version\":2"), 11, "\"version\":3").replace(plan.rfind("\n}"), 1, ",\n" + arena);
  const PlanFile file = parse_plan(plan, "docs/formats.md");
  EXPECT_EQ(format_plan(file), plan);
  EXPECT_EQ(validate_addresses(graph, costs, file.plan, *file.placement), std::nullopt);
}

}  // namespace
}  // namespace reprise
