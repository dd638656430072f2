#include "io/json_writer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

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

TEST(JsonWriterTest, ReplacesWhatIsNotUtf8) { EXPECT_EQ(json("a\xC3z\x80"), "\"a\xEF\xBF\xBDz\xEF\xBF\xBD\""); }

TEST(JsonWriterTest, WritesNumbersAndLists) {
  std::string out;
  append_number(out, std::numeric_limits<std::int64_t>::min());
  append_list(out, std::vector<int>{}, [&](int i) { append_number(out, i); });
  append_list(out, std::vector<int>{1, 2}, [&](int i) { append_number(out, i); });
  EXPECT_EQ(out, "-9223372036854775808[][1,2]");
}

}  // namespace
}  // namespace reprise::detail
