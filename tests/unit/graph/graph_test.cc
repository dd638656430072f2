#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "fixtures/odd_steps.h"
#include "fixtures/steps.h"
#include "reprise/error.h"
#include "reprise/graph_builder.h"
#include "support/input_error.h"

namespace reprise {
namespace {

constexpr std::int64_t kLimit = std::int64_t{1} << 59;

struct Refusal {
  const char* message;
  std::function<void(GraphBuilder&)> add;
};

void expect_refused(const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals) {
    const std::string error = input_error([&] {
      GraphBuilder b;
      refusal.add(b);
      static_cast<void>(b.build());
    });
    EXPECT_EQ(error, refusal.message);
  }
}

TEST(GraphBuilderTest, RefusesUnknownIds) {
  expect_refused({
      {"op 0 'a': names unknown value 7", [](GraphBuilder& b) { b.op({.name = "a", .inputs = {value_id(7)}}); }},
      {"op 0 'a': names unknown value 0", [](GraphBuilder& b) { b.op({.name = "a", .outputs = {value_id(0)}}); }},
      {"op 0 'a': names unknown value 4294967295", [](GraphBuilder& b) { b.op({.name = "a", .inputs = {kNoValue}}); }},
      {"op 0 'a': unknown scope 1",
       [](GraphBuilder& b) {
         b.scope("only");
         b.op({.name = "a", .scope = scope_id(1)});
       }},
      {"held: names unknown value 0", [](GraphBuilder& b) { b.hold(value_id(0)); }},
      {"outputs: names unknown value 0", [](GraphBuilder& b) { b.output(value_id(0)); }},
      {"overwrites: names unknown value 1",
       [](GraphBuilder& b) {
         b.value(1);
         b.overwrite(value_id(0), value_id(1));
       }},
  });
}

TEST(GraphBuilderTest, RefusesWrongOrder) {
  expect_refused({
      {"op 0 'relu': reads value 0 before an op makes it; list ops in execution order",
       [](GraphBuilder& b) {
         const ValueId x = b.value(1), y = b.value(1);
         b.op({.name = "relu", .inputs = {x}, .outputs = {y}});
         b.op({.name = "conv", .outputs = {x}});
       }},
      {"op 0 'loop': reads value 0 before an op makes it; list ops in execution order",
       [](GraphBuilder& b) {
         const ValueId x = b.value(1);
         b.op({.name = "loop", .inputs = {x}, .outputs = {x}});
       }},
      {"value 0: no op makes it, and it is neither resident nor arriving", [](GraphBuilder& b) { b.value(1); }},
  });
}

TEST(GraphBuilderTest, RefusesRepetitions) {
  expect_refused({
      {"op 0 'add': reads value 0 twice; name it once",
       [](GraphBuilder& b) {
         const ValueId x = b.arriving(1);
         b.op({.name = "add", .inputs = {x, x}});
       }},
      {"op 1 'b': makes value 0, which op 0 'a' makes already",
       [](GraphBuilder& b) {
         const ValueId x = b.value(1);
         b.op({.name = "a", .outputs = {x}});
         b.op({.name = "b", .outputs = {x}});
       }},
      {"op 0 'a': makes value 0, which op 0 'a' makes already",
       [](GraphBuilder& b) {
         const ValueId x = b.value(1);
         b.op({.name = "a", .outputs = {x, x}});
       }},
      {"op 0 'a': makes value 0, which exists from the start",
       [](GraphBuilder& b) { b.op({.name = "a", .outputs = {b.resident(1)}}); }},
      {"op 0 'a': makes value 0, which exists from the start",
       [](GraphBuilder& b) { b.op({.name = "a", .outputs = {b.arriving(1)}}); }},
      {"outputs names value 0 twice",
       [](GraphBuilder& b) {
         const ValueId x = b.arriving(1);
         b.output(x);
         b.output(x);
       }},
  });
}

TEST(GraphBuilderTest, RefusesPhasesOutOfOrder) {
  expect_refused({
      {"op 0 'b': a backward op before the caller's op",
       [](GraphBuilder& b) { b.op({.name = "b", .phase = Phase::kBackward}); }},
      {"op 1 'f': a forward op after the caller's op",
       [](GraphBuilder& b) {
         b.op({.name = "c", .phase = Phase::kCaller});
         b.op({.name = "f"});
       }},
      {"op 2 'd': a second caller's op; a step has only one",
       [](GraphBuilder& b) {
         b.op({.name = "c", .phase = Phase::kCaller});
         b.op({.name = "b", .phase = Phase::kBackward});
         b.op({.name = "d", .phase = Phase::kCaller});
       }},
  });
}

// In most cases value 0 exists from the start, and op 0 makes value 1, which overwrites it.
TEST(GraphBuilderTest, RefusesWrongOverwrites) {
  expect_refused({
      {"op 0 'a': value 1 overwrites value 0, which is not an input of the op",
       [](GraphBuilder& b) {
         const ValueId x = b.arriving(4), y = b.value(4);
         b.overwrite(y, x);
         b.op({.name = "a", .outputs = {y}});
       }},
      {"op 0 'a': value 1 overwrites value 0, which has another size",
       [](GraphBuilder& b) {
         const ValueId x = b.arriving(4), y = b.value(5);
         b.overwrite(y, x);
         b.op({.name = "a", .inputs = {x}, .outputs = {y}});
       }},
      {"op 0 'a': value 1 overwrites value 0, and so does value 2",
       [](GraphBuilder& b) {
         const ValueId x = b.arriving(4), y = b.value(4), z = b.value(4);
         b.overwrite(y, x);
         b.overwrite(z, x);
         b.op({.name = "a", .inputs = {x}, .outputs = {y, z}});
       }},
      {"value 2 overwrites two values",
       [](GraphBuilder& b) {
         const ValueId x = b.arriving(4), y = b.arriving(4), z = b.value(4);
         b.overwrite(z, x);
         b.overwrite(z, y);
       }},
      {"value 1: overwrites, but no op makes it",
       [](GraphBuilder& b) {
         const ValueId x = b.arriving(4), y = b.arriving(4);
         b.overwrite(y, x);
       }},
      {"op 0 'a': value 0 overwrites value 0, which is not an input of the op",
       [](GraphBuilder& b) {
         const ValueId x = b.value(4);
         b.overwrite(x, x);
         b.op({.name = "a", .outputs = {x}});
       }},
  });
}

TEST(GraphBuilderTest, ContentsOfMemoryThatIsNotOursEndInAnOutput) {
  expect_refused({
      {"value 1: last contents of resident or held memory, so it must be a step output",
       [](GraphBuilder& b) {
         const ValueId stat = b.resident(4), next = b.value(4);
         b.overwrite(next, stat);
         b.op({.name = "update", .inputs = {stat}, .outputs = {next}});
       }},
      {"value 2: last contents of resident or held memory, so it must be a step output",
       [](GraphBuilder& b) {
         const ValueId stat = b.resident(4), middle = b.value(4), last = b.value(4);
         b.overwrite(middle, stat);
         b.overwrite(last, middle);
         b.output(middle);
         b.op({.name = "mul_", .inputs = {stat}, .outputs = {middle}});
         b.op({.name = "add_", .inputs = {middle}, .outputs = {last}});
       }},
      {"value 0: two values overwrite it, but the step does not own it",
       [](GraphBuilder& b) {
         const ValueId stat = b.resident(4), one = b.value(4), two = b.value(4);
         b.overwrite(one, stat);
         b.overwrite(two, stat);
         b.output(one);
         b.output(two);
         b.op({.name = "a", .inputs = {stat}, .outputs = {one}});
         b.op({.name = "b", .inputs = {stat}, .outputs = {two}});
       }},
      {"value 1: last contents of resident or held memory, so it must be a step output",
       [](GraphBuilder& b) {
         const ValueId x = b.arriving(4), next = b.value(4);
         b.hold(x);
         b.overwrite(next, x);
         b.op({.name = "mul_", .inputs = {x}, .outputs = {next}});
       }},
  });
  // Two values may overwrite the same one if the step owns its memory.
  GraphBuilder b;
  const ValueId x = b.arriving(4), one = b.value(4), two = b.value(4);
  b.overwrite(one, x);
  b.overwrite(two, x);
  b.op({.name = "a", .inputs = {x}, .outputs = {one}});
  b.op({.name = "b", .inputs = {x}, .outputs = {two}});
  EXPECT_EQ(b.build().graph.num_ops(), 2U);
}

TEST(GraphBuilderTest, RefusesNegativeSizesAndTimes) {
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  expect_refused({
      {"bytes is negative: -1", [](GraphBuilder& b) { b.arriving(-1); }},
      {"bytes is negative: -9223372036854775808", [](GraphBuilder& b) { b.arriving(kLeast); }},
      {"bytes is negative: -2", [](GraphBuilder& b) { b.op({.name = "a", .workspace_bytes = -2}); }},
      {"time_ns is negative: -3", [](GraphBuilder& b) { b.op({.name = "a", .time_ns = -3}); }},
  });
}

TEST(GraphBuilderTest, SumsStayBelowTwoToThe59) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const char* const bytes = "bytes: the sum over the graph is 2^59 or more";
  const char* const time = "time_ns: the sum over the graph is 2^59 or more";
  expect_refused({
      {bytes, [](GraphBuilder& b) { b.arriving(kLimit); }},
      {bytes, [](GraphBuilder& b) { b.arriving(kMost); }},
      {bytes,
       [](GraphBuilder& b) {
         b.arriving(kLimit - 1);
         b.resident(1);
       }},
      {bytes,
       [](GraphBuilder& b) {
         b.arriving(kLimit / 2);
         b.op({.name = "a", .workspace_bytes = kLimit / 2});
       }},
      {bytes,
       [](GraphBuilder& b) {
         for (int i = 0; i < 40; ++i) b.arriving(kMost / 16);  // A plain sum would overflow.
       }},
      {time, [](GraphBuilder& b) { b.op({.name = "a", .time_ns = kLimit}); }},
      {time,
       [](GraphBuilder& b) {
         b.op({.name = "a", .time_ns = kLimit - 1});
         b.op({.name = "b", .time_ns = 1});
       }},
  });
  GraphBuilder b;
  b.arriving(kLimit - 2);
  b.op({.name = "a", .time_ns = kLimit - 1, .workspace_bytes = 1});
  EXPECT_EQ(b.build().costs.value_bytes[0], kLimit - 2);
}

// A start over x that makes r and s, and its wait that makes w, changed by `spoil`.
struct Collective {
  ValueId x, other, r, s, w;
  OpSpec start{.name = "start", .time_ns = 5, .stream = 1};
  OpSpec wait{.name = "wait"};
};

std::function<void(GraphBuilder&)> collective(const std::function<void(GraphBuilder&, Collective&)>& spoil) {
  return [spoil](GraphBuilder& b) {
    Collective both{.x = b.arriving(8), .other = b.arriving(8), .r = b.value(8), .s = b.value(4), .w = b.value(8)};
    both.start.inputs = {both.x};
    both.start.outputs = {both.r, both.s};
    both.wait.inputs = {both.r, both.s, both.x};
    both.wait.outputs = {both.w};
    b.overwrite(both.w, both.r);
    spoil(b, both);
    b.op(both.start);
    b.op(both.wait);
    b.op({.name = "caller", .phase = Phase::kCaller});
  };
}

TEST(GraphBuilderTest, RefusesCollectivesThatAreNotWaitedForInFull) {
  const std::string reads = "op 1 'wait': reads what op 0 'start' has in flight, ";
  const std::string in_part = reads + "but not its value 0", more = reads + "and something else",
                    makes = reads + "but does not make one value over it", starts = reads + "but is a start itself",
                    differs = reads + "but differs from it in phase or once",
                    held = reads + "and makes a value that the caller holds, so it must be once",
                    again = "op 2 'again': reads what op 0 'start' has in flight, which has another wait";
  expect_refused({
      {in_part.c_str(), collective([](GraphBuilder&, Collective& c) {
         c.wait.inputs = {c.r, c.s};
       })},
      {more.c_str(), collective([](GraphBuilder&, Collective& c) { c.wait.inputs.push_back(c.other); })},
      {makes.c_str(), collective([](GraphBuilder& b, Collective& c) { c.wait.outputs.push_back(b.value(1)); })},
      {starts.c_str(),
       [](GraphBuilder& b) {
         const ValueId r = b.value(8), w = b.value(8);
         b.op({.name = "start", .stream = 1, .outputs = {r}});
         b.op({.name = "wait", .stream = 1, .inputs = {r}, .outputs = {w}});
         b.op({.name = "caller", .phase = Phase::kCaller});
       }},
      {differs.c_str(), collective([](GraphBuilder&, Collective& c) { c.start.once = true; })},
      {held.c_str(), collective([](GraphBuilder& b, Collective& c) {
         b.hold(c.w);
         b.output(c.w);
       })},
      {again.c_str(),
       [](GraphBuilder& b) {
         const ValueId r = b.value(8), w = b.value(8), more_of_it = b.value(8);
         b.overwrite(w, r);
         b.overwrite(more_of_it, r);
         b.op({.name = "start", .stream = 1, .outputs = {r}});
         b.op({.name = "wait", .inputs = {r}, .outputs = {w}});
         b.op({.name = "again", .inputs = {r}, .outputs = {more_of_it}});
         b.op({.name = "caller", .phase = Phase::kCaller});
       }},
      {"op 0 'start': a start makes value 2, which the caller holds", collective([](GraphBuilder& b, Collective& c) {
         b.hold(c.r);
         b.output(c.w);
       })},
      {"op 0 'start': a start makes value 3, which is a step output",
       collective([](GraphBuilder& b, Collective& c) { b.output(c.s); })},
      {"op 0 'start': a start makes value 3, which overwrites another value",
       collective([](GraphBuilder& b, Collective& c) {
         c.x = b.arriving(4);
         c.start.inputs.push_back(c.x);
         b.overwrite(c.s, c.x);
       })},
      {"op 0 'start': stream 2 before stream 1; number communicators in the order of their first starts",
       collective([](GraphBuilder&, Collective& c) { c.start.stream = 2; })},
      {"op 0 'start': a start without a wait",
       [](GraphBuilder& b) {
         b.op({.name = "start", .stream = 1, .outputs = {b.value(1)}});
         b.op({.name = "caller", .phase = Phase::kCaller});
       }},
      {"op 0 'start': a forward-only graph has no communicators",
       [](GraphBuilder& b) { b.op({.name = "start", .stream = 1, .outputs = {b.value(1)}}); }},
      {"op 0 'caller': the caller's op has stream 0",
       [](GraphBuilder& b) { b.op({.name = "caller", .phase = Phase::kCaller, .stream = 1}); }},
  });
  EXPECT_EQ(input_error([] {
              GraphBuilder b;
              collective([](GraphBuilder&, Collective&) {})(b);
              static_cast<void>(b.build());
            }),
            "(no error)");
}

TEST(GraphTest, KnowsCollectives) {
  const Graph graph = test::two_gathered_layers_step().graph;
  EXPECT_EQ(graph.num_communicators(), 1U);
  EXPECT_TRUE(graph.is_start(op_id(0)));
  EXPECT_FALSE(graph.is_wait(op_id(0)));
  EXPECT_TRUE(graph.is_wait(op_id(1)));
  EXPECT_EQ(graph.partner(op_id(0)), op_id(1));
  EXPECT_EQ(graph.partner(op_id(1)), op_id(0));
  EXPECT_EQ(graph.partner(op_id(2)), kNoOp);
  EXPECT_TRUE(graph.in_flight(value_id(3)));
  EXPECT_TRUE(graph.in_flight(value_id(4)));
  EXPECT_FALSE(graph.in_flight(value_id(5)));
  EXPECT_FALSE(graph.in_flight(value_id(0)));
}

TEST(GraphTest, KeepsWhatItWasGiven) {
  GraphBuilder b("name");
  const ScopeId scope = b.scope("layer.0");
  const ValueId w = b.resident(1), x = b.arriving(2), y = b.value(3), z = b.value(3), g = b.value(4);
  b.overwrite(z, y);
  b.hold(z);
  b.output(g);
  b.output(z);
  const OpId conv = b.op({.name = "conv",
                          .scope = scope,
                          .time_ns = 5,
                          .workspace_bytes = 6,
                          .backward_reads = BackwardReads::kBoth,
                          .inputs = {x, w},
                          .outputs = {y}});
  const OpId relu = b.op({.name = "relu_", .once = true, .inputs = {y}, .outputs = {z}});
  const OpId caller = b.op({.name = "caller", .phase = Phase::kCaller, .inputs = {z}, .outputs = {}});
  const OpId back = b.op({.name = "back", .phase = Phase::kBackward, .inputs = {z, x}, .outputs = {g}});
  const auto [graph, costs] = b.build();

  EXPECT_EQ(graph.name(), "name");
  EXPECT_EQ(graph.num_ops(), 4U);
  EXPECT_EQ(graph.num_values(), 5U);
  EXPECT_EQ(graph.caller_op(), caller);
  EXPECT_FALSE(graph.forward_only());
  EXPECT_EQ(graph.op_name(relu), "relu_");
  EXPECT_EQ(graph.scope_name(conv), "layer.0");
  EXPECT_EQ(graph.scope(relu), kNoScope);
  EXPECT_EQ(graph.scope_name(relu), "");
  EXPECT_EQ(costs.time_ns[index(conv)], 5);
  EXPECT_EQ(costs.workspace_bytes[index(conv)], 6);
  EXPECT_EQ(graph.backward_reads(conv), BackwardReads::kBoth);
  EXPECT_EQ(graph.phase(back), Phase::kBackward);
  EXPECT_FALSE(graph.once(conv));
  EXPECT_TRUE(graph.once(relu));
  EXPECT_TRUE(graph.once(caller)) << "the caller's op always is";
  EXPECT_EQ(std::vector<ValueId>(graph.inputs(conv).begin(), graph.inputs(conv).end()), (std::vector{x, w}));
  EXPECT_EQ(std::vector<OpId>(graph.readers(x).begin(), graph.readers(x).end()), (std::vector{conv, back}));
  EXPECT_TRUE(graph.readers(g).empty());
  EXPECT_EQ(graph.producer(w), kNoOp);
  EXPECT_EQ(graph.producer(z), relu);
  EXPECT_EQ(graph.overwrites(z), y);
  EXPECT_EQ(graph.overwrites(y), kNoValue);
  EXPECT_TRUE(graph.pinned(w));
  EXPECT_TRUE(graph.pinned(z));
  EXPECT_FALSE(graph.pinned(x));
  const auto outputs = graph.step_outputs();
  EXPECT_EQ(std::vector<ValueId>(outputs.begin(), outputs.end()), (std::vector{z, g})) << "in order of value";
}

TEST(GraphTest, AnEmptyGraphIsForwardOnly) {
  const auto [graph, costs] = GraphBuilder("nothing").build();
  EXPECT_TRUE(graph.forward_only());
  EXPECT_EQ(graph.num_ops(), 0U);
  EXPECT_TRUE(graph.step_outputs().empty());
}

TEST(GraphTest, ReadersAndInputsMirrorEachOther) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const auto [graph, costs] = test::odd_step(seed);
    std::vector<std::vector<OpId>> readers(graph.num_values());
    for (std::size_t i = 0; i < graph.num_ops(); ++i) {
      for (const ValueId v : graph.inputs(op_id(i))) readers[index(v)].push_back(op_id(i));
      for (const ValueId v : graph.outputs(op_id(i))) EXPECT_EQ(graph.producer(v), op_id(i)) << "seed " << seed;
    }
    for (std::size_t i = 0; i < graph.num_values(); ++i) {
      const auto row = graph.readers(value_id(i));
      EXPECT_EQ(std::vector<OpId>(row.begin(), row.end()), readers[i]) << "seed " << seed << ", value " << i;
    }
  }
}

TEST(GraphTest, EqualCallsGiveEqualGraphs) {
  EXPECT_EQ(test::odd_step(7), test::odd_step(7));
  EXPECT_NE(test::odd_step(7), test::odd_step(8));
}

}  // namespace
}  // namespace reprise
