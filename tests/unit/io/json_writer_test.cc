#include "io/json_writer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "reprise/graph.h"
#include "support/input_error.h"

namespace reprise::detail {
namespace {

std::string json(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

TEST(JsonWriterTest, EscapesOnlyWhatMustBeEscaped) {
  EXPECT_EQ(json("plain / text"), "\"plain / text\"");
  EXPECT_EQ(json("\"\\\b\f\n\r\t"), R"("\"\\\b\f\n\r\t")");
  EXPECT_EQ(json(std::string_view("\0\x1F\x7F", 3)), "\"\\u0000\\u001f\x7F\"");
  EXPECT_EQ(json("caf\xC3\xA9"), "\"caf\xC3\xA9\"");
}

TEST(JsonWriterTest, RefusesWhatIsNotUtf8) {
  EXPECT_EQ(input_error([] { json("a\xC3z\x80"); }), "a name is not UTF-8: \"a\xEF\xBF\xBDz\xEF\xBF\xBD\"");
}

// A text of two bytes is UTF-8 if it is two ASCII characters or one character of two bytes.
TEST(JsonWriterTest, KnowsUtf8) {
  int valid = 0;
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text{static_cast<char>(first), static_cast<char>(second)};
      if (is_utf8(text)) ++valid;
    }
  }
  EXPECT_EQ(valid, 128 * 128 + (0x800 - 0x80));
  EXPECT_FALSE(is_utf8("\xED\xA0\x80"));       // a surrogate
  EXPECT_FALSE(is_utf8("a\xF0\x8F\xBF\xBF"));  // an overlong encoding
}

TEST(JsonWriterTest, WritesNumbersAndLists) {
  std::string out;
  append_number(out, std::numeric_limits<std::int64_t>::min());
  append_list(out, std::vector<int>{}, [&](int i) { append_number(out, i); });
  append_list(out, std::vector<int>{1, 2}, [&](int i) { append_number(out, i); });
  EXPECT_EQ(out, "-9223372036854775808[][1,2]");
}

TEST(JsonWriterTest, WritesObjectsKeyByKey) {
  std::string out;
  {
    JsonObject object(out);
    object.line("name", "conv");
    object.field("once", true);
    object.unless("bytes", 0, 0);
    object.unless("time_ns", 7, 0);
    object.unless_empty("inputs", std::vector<ValueId>{});
    object.line("outputs", std::vector<ValueId>{value_id(2)});
    JsonObject(object.key("more")).field("texts", std::vector<std::string>{"a", "b"});
  }
  EXPECT_EQ(out,
            "{\n\"name\":\"conv\",\"once\":true,\"time_ns\":7,\n\"outputs\":[2],\"more\":{\"texts\":[\"a\",\"b\"]}}");
}

}  // namespace
}  // namespace reprise::detail
