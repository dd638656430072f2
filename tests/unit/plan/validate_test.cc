#include "reprise/validate.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reprise/graph_builder.h"
#include "support/short_actions.h"

namespace reprise {
namespace {

using test::c;
using test::c_in_place;
using test::f;

// A step with one value of each kind: 0 weight and 1 stat are resident, 2 x is arriving, 3 is y, 4 is z, which
// overwrites y, 5 is the new stat, which overwrites stat, 6 loss and 7 seed are held, and 8 is a gradient.
Graph small_step() {
  GraphBuilder b;
  const ValueId weight = b.resident(8), stat = b.resident(4), x = b.arriving(16), y = b.value(32), z = b.value(32);
  const ValueId new_stat = b.value(4), loss = b.value(1), seed = b.value(1), g = b.value(8);
  b.overwrite(z, y);
  b.overwrite(new_stat, stat);
  for (const ValueId v : {loss, seed}) b.hold(v);
  for (const ValueId v : {new_stat, g}) b.output(v);
  b.op({.name = "conv", .inputs = {x, weight}, .outputs = {y}});
  b.op({.name = "relu_", .inputs = {y}, .outputs = {z}});
  b.op({.name = "update", .once = true, .inputs = {stat}, .outputs = {new_stat}});
  b.op({.name = "loss", .inputs = {z}, .outputs = {loss}});
  b.op({.name = "caller", .phase = Phase::kCaller, .inputs = {loss}, .outputs = {seed}});
  b.op({.name = "back", .phase = Phase::kBackward, .inputs = {seed, z}, .outputs = {g}});
  return b.build().graph;
}

std::string first_violation(const Graph& graph, const std::vector<Action>& actions) {
  const auto violation = validate(graph, {.actions = actions});
  if (!violation) return "";
  const bool at_end = violation->action == actions.size();
  EXPECT_EQ(at_end, !violation->message.starts_with("action " + std::to_string(violation->action) + ": "));
  return violation->message;
}

TEST(ValidateTest, AcceptsLegalPlans) {
  const std::vector<Action> plans[] = {
      {c(0), c_in_place(1), c_in_place(2), c(3), c(4), c(5)},
      {c(0), c_in_place(1), c_in_place(2), c(3), c(4), c(5), f(4), f(2)},
      // Ops copy instead of computing in place, and the old contents of the statistics stay.
      {c(0), c(1), f(3), c(2), c(3), c(4), c(5), f(4)},
      // z is made again for backward, in the first plan over a y that is still live, in the second over a new y.
      {c(0), c(1), c(2), c(3), f(4), c(4), c_in_place(1), c(5)},
      {c(0), c_in_place(1), c_in_place(2), c(3), f(4), c(4), c(0), c_in_place(1), c(5)},
      // Ops run again while their outputs are live, and a held value is made again.
      {c(0), c(0), c(1), c(1), c(2), c(3), c(3), c(4), c(5), c(5)},
  };
  for (const auto& actions : plans) EXPECT_EQ(first_violation(small_step(), actions), "");
}

TEST(ValidateTest, NamesTheFirstRuleBroken) {
  struct Case {
    std::vector<Action> actions;
    const char* message;
  };
  const Case cases[] = {
      // 1. Every id exists.
      {{c(6)}, "action 0: computes unknown op 6"},
      {{c(0), f(9)}, "action 1: frees unknown value 9"},
      {{Action::compute(kNoOp)}, "action 0: computes unknown op 4294967295"},
      {{Action::free(kNoValue)}, "action 0: frees unknown value 4294967295"},
      // 2. What is read is live.
      {{c(1)}, "action 0: computes op 1 'relu_', whose input value 3 is not live"},
      {{f(2), c(0)}, "action 1: computes op 0 'conv', whose input value 2 is not live"},
      {{c(0), c_in_place(1), c(1)}, "action 2: computes op 1 'relu_', whose input value 3 is not live"},
      {{c(0), c_in_place(1), c(2), f(4), c(3)}, "action 4: computes op 3 'loss', whose input value 4 is not live"},
      // 3. What is freed is live and belongs to the step.
      {{f(3)}, "action 0: frees value 3, which is not live"},
      {{c(0), f(3), f(3)}, "action 2: frees value 3, which is not live"},
      {{c(0), c_in_place(1), f(3)}, "action 2: frees value 3, which is not live"},
      {{f(0)}, "action 0: frees value 0, whose memory is resident or held by the caller"},
      {{c(0), c(1), c(3), f(6)}, "action 3: frees value 6, whose memory is resident or held by the caller"},
      {{c_in_place(2), f(5)}, "action 1: frees value 5, whose memory is resident or held by the caller"},
      {{c_in_place(2), f(1)}, "action 1: frees value 1, which is not live"},
      {{c(2), f(1)}, "action 1: frees value 1, whose memory is resident or held by the caller"},
      // 4. An op runs in place only if it can.
      {{c_in_place(0)}, "action 0: computes op 0 'conv' in place, but none of its outputs overwrites an input"},
      {{c(0), c(1), c_in_place(1)}, "action 2: computes op 1 'relu_' in place, but its output value 4 is still live"},
      // 5. `once` ops run once and in order.
      {{c(2), c(2)}, "action 1: computes op 2 'update', which must not be repeated"},
      {{c(0), c(1), c(3), c(4)}, "action 3: computes op 4 'caller' before op 2 'update', which comes first"},
      {{c(0), c(1), c(2), c(3), c(4), c(4)}, "action 5: computes op 4 'caller', which must not be repeated"},
      // 6. The outputs are live at the end.
      {{c(0), c(1), c(2), c(3), c(4)}, "step output value 8 is not live at the end"},
      {{c(0), c(1), c(2), f(5), c(3), c(4), c(5)}, "step output value 5 is not live at the end"},
      {{}, "step output value 5 is not live at the end"},
  };
  for (const Case& example : cases) EXPECT_EQ(first_violation(small_step(), example.actions), example.message);
}

TEST(ValidateTest, AOnceOpMustRunThoughNobodyReadsIt) {
  GraphBuilder b;
  b.op({.name = "print", .once = true, .inputs = {}, .outputs = {}});
  b.op({.name = "caller", .phase = Phase::kCaller, .inputs = {}, .outputs = {}});
  const Graph graph = b.build().graph;
  EXPECT_EQ(first_violation(graph, {}), "op 0 'print' must run once and never does");
  EXPECT_EQ(first_violation(graph, {c(0)}), "op 1 'caller' must run once and never does");
  EXPECT_EQ(first_violation(graph, {c(0), c(1)}), "");
}

// Both outputs of the op are made in place. If one of them is still live, that is enough to refuse it.
TEST(ValidateTest, InPlaceIsForAllOutputsOrNone) {
  GraphBuilder b;
  const ValueId p = b.arriving(1), q = b.arriving(1), r = b.arriving(1), new_p = b.value(1), new_q = b.value(1);
  b.overwrite(new_p, p);
  b.overwrite(new_q, q);
  b.op({.name = "pair", .inputs = {p, q, r}, .outputs = {new_p, new_q}});
  b.op({.name = "caller", .phase = Phase::kCaller, .inputs = {}, .outputs = {}});
  const Graph graph = b.build().graph;
  EXPECT_EQ(first_violation(graph, {c_in_place(0), c(1), f(2)}), "");
  EXPECT_EQ(first_violation(graph, {c_in_place(0), f(0)}), "action 1: frees value 0, which is not live");
  EXPECT_EQ(first_violation(graph, {c(0), f(3), c_in_place(0)}),
            "action 2: computes op 0 'pair' in place, but its output value 4 is still live");
}

}  // namespace
}  // namespace reprise
