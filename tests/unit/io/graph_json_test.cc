#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "fixtures/steps.h"
#include "reprise/graph_builder.h"
#include "reprise/io.h"
#include "support/costed.h"
#include "support/input_error.h"

namespace reprise {
namespace {

// The example of docs/formats.md.
constexpr std::string_view kTwoLayers = R"({
"format":"reprise.graph","version":1,
"name":"two layers",
"scopes":["fc1","fc2"],
"values":{
"bytes":[400,64,64,4,4,64,400],
"resident":[0],
"arriving":[1],
"held":[4],
"overwrites":[]},
"outputs":[3,6],
"ops":[
{"name":"linear","scope":0,"time_ns":1200,"workspace_bytes":512,"inputs":[0,1],"outputs":[2]},
{"name":"loss","scope":1,"time_ns":90,"inputs":[2],"outputs":[3]},
{"name":"caller","phase":"caller","inputs":[3],"outputs":[4]},
{"name":"loss_backward","scope":1,"phase":"backward","time_ns":90,"inputs":[4,2],"outputs":[5]},
{"name":"linear_backward","scope":0,"phase":"backward","time_ns":2400,"inputs":[5,1],"outputs":[6]}
]
}
)";

// A file whose parts can be replaced one by one. Each part is on a line of its own, from the second line on.
struct Parts {
  std::string header = R"("format":"reprise.graph","version":1)";
  std::string scopes = R"(["block"])";
  std::string values = R"({"bytes":[8,8,8]})";
  std::string outputs = "[]";
  std::string ops = R"([{"name":"a","outputs":[0]},{"name":"b","inputs":[0],"outputs":[1,2]}])";

  [[nodiscard]] std::string text() const {
    return "{\n" + header + ",\n\"scopes\":" + scopes + ",\n\"values\":" + values + ",\n\"outputs\":" + outputs +
           ",\n\"ops\":" + ops + "}";
  }
};

std::string graph_error(const std::string& text) {
  return input_error([&] { static_cast<void>(parse_graph(text, "g.json")); });
}

TEST(GraphJsonTest, ReadsTheDocumentedExample) {
  const auto [graph, costs] = parse_graph(kTwoLayers, "two.json");
  EXPECT_EQ(graph.name(), "two layers");
  EXPECT_EQ(graph.num_ops(), 5U);
  EXPECT_EQ(graph.num_values(), 7U);
  EXPECT_EQ(graph.caller_op(), op_id(2));
  EXPECT_EQ(graph.scope_name(op_id(1)), "fc2");
  EXPECT_EQ(costs.workspace_bytes[0], 512);
  EXPECT_TRUE(graph.once(op_id(2)));
  EXPECT_EQ(graph.residence(value_id(0)), Residence::kResident);
  EXPECT_EQ(graph.residence(value_id(1)), Residence::kArriving);
  EXPECT_TRUE(graph.held(value_id(4)));
  EXPECT_THAT(graph.step_outputs(), testing::ElementsAre(value_id(3), value_id(6)));
}

TEST(GraphJsonTest, WritesTheDocumentedExampleByteForByte) {
  EXPECT_EQ(format_graph(parse_graph(kTwoLayers, "two.json")), kTwoLayers);
}

TEST(GraphJsonTest, WritesThePapersGraphsByteForByte) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(REPRISE_SOURCE_DIR "/data/papers")) {
    if (!entry.path().string().ends_with(".graph.json")) continue;
    const std::string text = read_text(entry.path());
    EXPECT_TRUE(format_graph(parse_graph(text, entry.path().string())) == text) << entry.path();
    ++files;
  }
  EXPECT_EQ(files, 7);
}

TEST(GraphJsonTest, EveryFieldSurvivesTheRoundTrip) {
  GraphBuilder b("\"caf\xC3\xA9\"\n");
  const ScopeId scope = b.scope("model.block");
  const ValueId weight = b.resident(100);
  const ValueId x = b.arriving(10);
  const ValueId y = b.value(10);
  const ValueId z = b.value(10);
  const ValueId loss = b.value(0);
  const ValueId seed = b.value(0);
  const ValueId new_weight = b.value(100);
  b.op({.name = "y", .scope = scope, .time_ns = 5, .workspace_bytes = 7, .inputs = {weight, x}, .outputs = {y}});
  b.op({.name = "z", .once = true, .backward_reads = BackwardReads::kBoth, .inputs = {y}, .outputs = {z, loss}});
  b.op({.name = "", .phase = Phase::kCaller, .inputs = {}, .outputs = {seed}});
  b.op({.name = "w", .phase = Phase::kBackward, .inputs = {seed, weight}, .outputs = {new_weight}});
  b.overwrite(z, y);
  b.overwrite(new_weight, weight);
  b.hold(seed);
  b.output(new_weight);
  b.output(loss);
  const CostedGraph step = b.build();
  const std::string text = format_graph(step);
  EXPECT_EQ(parse_graph(text, "g.json"), step);
  EXPECT_EQ(format_graph(parse_graph(text, "g.json")), text);
  EXPECT_THAT(text, testing::HasSubstr("\"overwrites\":[[3,2],[6,0]]},"));
}

TEST(GraphJsonTest, TheEmptyGraphSurvivesTheRoundTrip) {
  const CostedGraph empty = GraphBuilder().build();
  EXPECT_EQ(parse_graph(format_graph(empty), "g.json"), empty);
}

TEST(GraphJsonTest, KeysMayComeInAnyOrderAndDefaultsMayBeLeftOut) {
  const auto [graph, costs] = parse_graph(
      R"({"ops":[{"outputs":[0],"name":"a"}],"version":1,"values":{"bytes":[8]},"format":"reprise.graph"})", "g.json");
  EXPECT_EQ(graph.num_ops(), 1U);
  EXPECT_TRUE(graph.forward_only());
}

TEST(GraphJsonTest, RefusesOtherFormatsAndVersions) {
  EXPECT_EQ(graph_error(Parts{.header = R"("format":"reprise.plan","version":1)"}.text()),
            "g.json:2:10: format: expected 'reprise.graph', found 'reprise.plan'");
  EXPECT_EQ(graph_error(Parts{.header = R"("format":"reprise.graph","version":3)"}.text()),
            "g.json:2:36: version: version 3 is unknown; this reader knows 1 to 2");
  EXPECT_EQ(graph_error(Parts{.header = R"("version":1)"}.text()), "g.json:1:1: key 'format' is missing");
  EXPECT_EQ(graph_error(Parts{.header = R"("format":"reprise.graph")"}.text()), "g.json:1:1: key 'version' is missing");
}

TEST(GraphJsonTest, OpsOnCommunicatorsNeedVersionTwo) {
  const CostedGraph step = test::two_gathered_layers_step();
  const std::string text = format_graph(step);
  EXPECT_THAT(text, testing::HasSubstr("\"version\":2"));
  EXPECT_THAT(text, testing::HasSubstr("\"time_ns\":10,\"once\":true,\"stream\":1,"));
  EXPECT_EQ(parse_graph(text, "g.json"), step);
  EXPECT_EQ(format_graph(parse_graph(text, "g.json")), text);
  std::string older = text;
  older.replace(older.find("\"version\":2"), 11, "\"version\":1");
  EXPECT_EQ(graph_error(older), "g.json: version 1 has no ops on communicators; version 2 does");
  EXPECT_EQ(graph_error(Parts{.header = R"("format":"reprise.graph","version":2)"}.text()),
            "g.json: version 2 has ops on communicators, but no op has a stream above 0");
}

TEST(GraphJsonTest, ErrorsNameThePlaceInTheFile) {
  EXPECT_EQ(
      graph_error(Parts{.ops = R"([{"name":"a","outputs":[0]},{"name":"b","inputs":[0,"1"],"outputs":[1,2]}])"}.text()),
      "g.json:6:59: ops[1].inputs[1]: expected an integer, found a string");
  EXPECT_EQ(graph_error(Parts{.ops = R"([{"outputs":[0]}])"}.text()), "g.json:6:8: ops[0]: key 'name' is missing");
  EXPECT_THAT(
      graph_error(Parts{.ops = R"([{"name":"a","tme_ns":3}])"}.text()),
      testing::StartsWith("g.json:6:20: ops[0]: unknown key 'tme_ns'; the known keys are 'name', 'scope', 'phase', "));
  EXPECT_EQ(graph_error(Parts{.ops = R"([{"name":"a","phase":"update"}])"}.text()),
            "g.json:6:28: ops[0].phase: must be one of 'forward', 'caller', 'backward'");
  EXPECT_EQ(graph_error(Parts{.ops = R"([{"name":"a","time_ns":-3}])"}.text()),
            "g.json:6:30: ops[0].time_ns: negative: -3");
  EXPECT_EQ(graph_error(Parts{.ops = R"([{"name":"a","workspace_bytes":1e30}])"}.text()),
            "g.json:6:38: ops[0].workspace_bytes: expected an integer, found a number with a point or an exponent");
  EXPECT_EQ(graph_error(Parts{.ops = R"([{"name":"a","scope":4294967295}])"}.text()),
            "g.json:6:28: ops[0].scope: too large for an index: 4294967295");
}

TEST(GraphJsonTest, RefusesBrokenLists) {
  EXPECT_EQ(graph_error(Parts{.outputs = "[1,1]"}.text()),
            "g.json:5:14: outputs[1]: indices must be strictly increasing");
  EXPECT_EQ(graph_error(Parts{.values = R"({"bytes":[8],"held":[0,0]})"}.text()),
            "g.json:4:33: values.held[1]: indices must be strictly increasing");
  EXPECT_EQ(graph_error(Parts{.values = R"({"bytes":[8],"overwrites":[[1,0,2]]})"}.text()),
            "g.json:4:42: values.overwrites[0][2]: a pair [new, old] has two indices");
  EXPECT_EQ(graph_error(Parts{.values = R"({"bytes":[8],"overwrites":[[1]]})"}.text()),
            "g.json:4:38: values.overwrites[0]: expected a pair [new, old]");
  EXPECT_EQ(graph_error(Parts{.values = R"({"bytes":[8],"overwrites":[[2,0],[1,0]]})"}.text()),
            "g.json:4:46: values.overwrites[1]: new values must be strictly increasing");
}

TEST(GraphJsonTest, ErrorsAboutTheGraphCarryTheSource) {
  EXPECT_EQ(graph_error(Parts{.values = R"({"bytes":[8,8,8],"resident":[7]})"}.text()),
            "g.json: resident: names unknown value 7");
  EXPECT_EQ(graph_error(Parts{.values = R"({"bytes":[8,8,8],"resident":[1],"arriving":[1]})"}.text()),
            "g.json: value 1 is both resident and arriving");
  const std::string prefix = "g.json: ";
  EXPECT_THAT(graph_error(Parts{.outputs = "[3]"}.text()), testing::StartsWith(prefix));
  EXPECT_THAT(graph_error(Parts{.values = R"({"bytes":[8,8]})"}.text()), testing::StartsWith(prefix + "op 1 'b'"));
  EXPECT_THAT(graph_error(Parts{.ops = R"([{"name":"a","scope":1}])"}.text()), testing::StartsWith(prefix));
  EXPECT_THAT(graph_error(Parts{.values = R"({"bytes":[8,8,9223372036854775807]})"}.text()),
              testing::StartsWith(prefix));
}

TEST(GraphJsonTest, RefusesToWriteNamesThatAreNotUtf8) {
  const auto [graph, costs] = GraphBuilder("caf\xE9").build();
  EXPECT_EQ(input_error([&] { static_cast<void>(format_graph(graph, costs)); }),
            "a name is not UTF-8: \"caf\xEF\xBF\xBD\"");
}

TEST(GraphJsonTest, RefusesEveryPrefixOfAFile) {
  for (std::size_t length = 0; length + 2 < kTwoLayers.size(); ++length) {
    EXPECT_THAT(graph_error(std::string(kTwoLayers.substr(0, length))), testing::StartsWith("g.json:")) << length;
  }
}

}  // namespace
}  // namespace reprise
