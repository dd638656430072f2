#include "reprise/lives.h"

#include <gtest/gtest.h>

#include <vector>

#include "reprise/graph_builder.h"
#include "reprise/validate.h"
#include "support/short_actions.h"

namespace reprise {
namespace {

using test::c;
using test::c_in_place;
using test::f;

// Values 0 (x) and 1 (the weight) exist at the start. Op 0 (conv) makes value 2 (y), op 1 (relu_) overwrites it with
// value 3 (z), and then comes the caller's op.
Graph conv_relu() {
  GraphBuilder b;
  const ValueId x = b.arriving(100), w = b.resident(10), y = b.value(40), z = b.value(40);
  b.overwrite(z, y);
  b.output(z);
  b.op({.name = "conv", .inputs = {x, w}, .outputs = {y}});
  b.op({.name = "relu_", .inputs = {y}, .outputs = {z}});
  b.op({.name = "caller", .phase = Phase::kCaller});
  return b.build().graph;
}

Lives lives_of(const std::vector<Action>& actions) {
  const Graph graph = conv_relu();
  const Plan plan{.actions = actions};
  const auto violation = validate(graph, plan);
  EXPECT_FALSE(violation.has_value()) << violation->message;
  return lives(graph, plan);
}

TEST(LivesTest, EndWhereAValueIsFreedOrWrittenOver) {
  const ValueId x = value_id(0), w = value_id(1), y = value_id(2), z = value_id(3);
  EXPECT_EQ(lives_of({c(0), c_in_place(1), f(0), c(2)}), (Lives{{.value = x, .last = 2},
                                                                {.value = w},
                                                                {.value = y, .first = 0, .last = 1},
                                                                {.value = z, .first = 1, .took_over = y}}));
  EXPECT_EQ(lives_of({c(0), c(1), f(2), c(2)}),
            (Lives{{.value = x}, {.value = w}, {.value = y, .first = 0, .last = 2}, {.value = z, .first = 1}}));
}

TEST(LivesTest, EachRunBeginsAnotherOrMakesASecondCopy) {
  const ValueId x = value_id(0), w = value_id(1), y = value_id(2), z = value_id(3);
  EXPECT_EQ(lives_of({c(0), f(2), c(0), c(0), c_in_place(1), c(2)}),
            (Lives{{.value = x},
                   {.value = w},
                   {.value = y, .first = 0, .last = 1},
                   {.value = y, .first = 2, .last = 4},
                   {.value = y, .first = 3, .last = 3, .second_copy = true},
                   {.value = z, .first = 4, .took_over = y}}));
}

}  // namespace
}  // namespace reprise
