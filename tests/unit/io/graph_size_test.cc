// Files stay small: a step of 5,000 ops, with everything that a capture writes, takes less than 1 MB.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reprise/graph_builder.h"
#include "reprise/io.h"
#include "support/costed.h"

namespace reprise {
namespace {

// A step that uses every field, with numbers as long as those of real steps.
CostedGraph long_step(int ops) {
  GraphBuilder b("a long step");
  std::vector<ValueId> values = {b.arriving(19'267'584), b.resident(9'437'184), b.arriving(8), b.arriving(16)};
  for (int i = 0; i < ops; ++i) {
    const bool forward = i < ops / 2;
    const ScopeId scope = b.scope("layer3." + std::to_string(i % 36) + ".conv2");
    if (i == ops / 2) b.op({.name = "caller", .phase = Phase::kCaller});
    const ValueId out = b.value(102'760'448 + i);
    const ValueId statistics = b.value(2048);
    b.op({.name = forward ? "aten.native_batch_norm" : "aten.convolution_backward",
          .scope = scope,
          .phase = forward ? Phase::kForward : Phase::kBackward,
          .time_ns = 1'234'567 + i,
          .workspace_bytes = 8'519'680,
          .inputs = {values.back(), values[values.size() - 2], values[1]},
          .outputs = {out, statistics}});
    values.push_back(out);
  }
  return b.build();
}

TEST(GraphSizeTest, FiveThousandOpsAreBelowOneMegabyte) {
  const std::string text = format_graph(long_step(5000));
  EXPECT_LT(text.size(), 1'000'000U);
  EXPECT_EQ(format_graph(parse_graph(text, "long step")), text);
}

}  // namespace
}  // namespace reprise
