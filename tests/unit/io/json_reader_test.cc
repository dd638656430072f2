#include "io/json_reader.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "unit/io/input_error.h"

namespace reprise::detail {
namespace {

enum class Color { kRed, kBlue };

struct Sample {
  std::string text;
  std::int64_t number = 0;
  bool flag = false;
  std::uint32_t id = 0;
  Color color = Color::kRed;
  std::vector<std::int64_t> list;
};

constexpr std::pair<std::string_view, Color> kColors[] = {{"red", Color::kRed}, {"blue", Color::kBlue}};

constexpr JsonField<Sample> kFields[] = {
    {"text", [](JsonReader& in, Sample& s) { s.text = in.string(); }},
    {"number", [](JsonReader& in, Sample& s) { s.number = in.integer(); }},
    {"flag", [](JsonReader& in, Sample& s) { s.flag = in.boolean(); }},
    {"id", [](JsonReader& in, Sample& s) { s.id = in.id(); }},
    {"color", [](JsonReader& in, Sample& s) { s.color = in.choice(kColors); }},
    {"list", [](JsonReader& in, Sample& s) { in.array([&] { s.list.push_back(in.size()); }); }},
};

Sample read(std::string_view text) {
  Sample sample;
  JsonReader in(text, "s.json");
  in.object(kFields, sample);
  in.finish();
  return sample;
}

std::string error(const std::string& text) {
  return input_error([&] { read(text); });
}

std::string read_string(const std::string& literal) { return read("{\"text\":" + literal + "}").text; }
std::int64_t read_number(const std::string& literal) { return read("{\"number\":" + literal + "}").number; }
std::string string_error(const std::string& literal) { return error("{\"text\":" + literal + "}"); }
std::string number_error(const std::string& literal) { return error("{\"number\":" + literal + "}"); }

TEST(JsonReaderTest, ReadsEveryKindOfValue) {
  const Sample s = read(
      " {\"text\" : \"a\",\r\n\t\"number\":-7,\"flag\":true,\"id\":3,\"color\":\"blue\", \"list\":[ 1 ,2,3 ] } \n");
  EXPECT_EQ(s.text, "a");
  EXPECT_EQ(s.number, -7);
  EXPECT_TRUE(s.flag);
  EXPECT_EQ(s.id, 3U);
  EXPECT_EQ(s.color, Color::kBlue);
  EXPECT_EQ(s.list, (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(read("{}").number, 0);
  EXPECT_TRUE(read("{\"list\":[]}").list.empty());
}

TEST(JsonReaderTest, DecodesEscapes) {
  EXPECT_EQ(read_string(R"("\"\\\/\b\f\n\r\t")"), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(read_string(R"("\u0041\u00e9\u20AC\uD83D\ude00")"), "A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
  EXPECT_EQ(read_string(R"("\u0000")"), std::string(1, '\0'));
  EXPECT_EQ(read_string("\"caf\xC3\xA9\x7F\""), "caf\xC3\xA9\x7F");
}

TEST(JsonReaderTest, RefusesBrokenStrings) {
  EXPECT_EQ(string_error("\"abc"), "s.json:1:9: text: a string without end; is the file complete?");
  EXPECT_EQ(string_error("\"a\\"), "s.json:1:11: text: an unknown escape in a string");
  EXPECT_EQ(string_error(R"("\x")"), "s.json:1:10: text: an unknown escape in a string");
  EXPECT_EQ(string_error(R"("\u12G4")"), "s.json:1:12: text: expected four hexadecimal digits");
  EXPECT_EQ(string_error(R"("\u12)"), "s.json:1:12: text: expected four hexadecimal digits");
  EXPECT_EQ(string_error(R"("\u+123")"), "s.json:1:12: text: expected four hexadecimal digits");
  for (const char* half : {R"("\uD83D")", R"("\uDE00")", R"("\uD83D\u0041")", R"("\uD83D\n")"}) {
    EXPECT_EQ(string_error(half), "s.json:1:10: text: half of a surrogate pair") << half;
  }
  EXPECT_EQ(string_error("\"a\nb\""), "s.json:1:11: text: a control character in a string; escape it");
}

TEST(JsonReaderTest, RefusesInvalidUtf8) {
  for (const char* bytes : {"\x80", "\xC0\x80", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xFF"}) {
    EXPECT_EQ(string_error(std::string("\"") + bytes + "\""), "s.json:1:10: text: not UTF-8");
  }
}

TEST(JsonReaderTest, ReadsTheWholeRangeOf64Bits) {
  EXPECT_EQ(read_number("9223372036854775807"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(read_number("-9223372036854775808"), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(read_number("-0"), 0);
}

TEST(JsonReaderTest, RefusesWhatIsNoInteger) {
  for (const char* number : {"1.0", "1e30", "0E0", "1.", "-2.5"}) {
    EXPECT_EQ(number_error(number), "s.json:1:11: number: expected an integer, without point or exponent") << number;
  }
  for (const char* number : {"9223372036854775808", "-9223372036854775809", "99999999999999999999999999"}) {
    EXPECT_EQ(number_error(number), "s.json:1:11: number: an integer beyond 64 bits") << number;
  }
  for (const char* number : {"00", "01", "-007"}) {
    EXPECT_EQ(number_error(number), "s.json:1:11: number: a number that begins with 0") << number;
  }
  EXPECT_EQ(number_error("-"), "s.json:1:12: number: expected a digit, found '}'");
  EXPECT_EQ(number_error("+1"), "s.json:1:11: number: expected an integer, found '+'");
  EXPECT_EQ(number_error("\"1\""), "s.json:1:11: number: expected an integer, found a string");
  EXPECT_EQ(number_error("null"), "s.json:1:11: number: expected an integer, found null");
  EXPECT_EQ(number_error("NaN"), "s.json:1:11: number: expected an integer, found 'N'");
  EXPECT_EQ(number_error("1 2"), "s.json:1:13: expected ',' or '}', found a number");
  EXPECT_EQ(number_error("0x10"), "s.json:1:12: expected ',' or '}', found 'x'");
}

TEST(JsonReaderTest, RefusesSizesAndIdsOutOfRange) {
  EXPECT_EQ(error("{\"list\":[4,-1]}"), "s.json:1:12: list[1]: negative: -1");
  EXPECT_EQ(error("{\"id\":-1}"), "s.json:1:7: id: negative: -1");
  EXPECT_EQ(error("{\"id\":4294967295}"), "s.json:1:7: id: too large for an index: 4294967295");
  EXPECT_EQ(read("{\"id\":4294967294}").id, 4294967294U);
}

TEST(JsonReaderTest, RefusesUnknownAndRepeatedKeys) {
  EXPECT_EQ(error("{\"flag\":true,\n \"numbr\":1}"),
            "s.json:2:2: unknown key 'numbr'; known are 'text', 'number', 'flag', 'id', 'color', 'list'");
  EXPECT_EQ(error("{\"id\":1,\"id\":1}"), "s.json:1:9: key 'id' comes twice");
  EXPECT_EQ(error("{\"color\":\"green\"}"), "s.json:1:10: color: must be one of 'red', 'blue'");
}

TEST(JsonReaderTest, RefusesBrokenStructure) {
  EXPECT_EQ(error(""), "s.json:1:1: expected an object, found the end of the text; is the file complete?");
  EXPECT_EQ(error("\xEF\xBB\xBF{}"), "s.json:1:1: expected an object, found byte 239");
  EXPECT_EQ(error("[]"), "s.json:1:1: expected an object, found an array");
  EXPECT_EQ(error("{} x"), "s.json:1:4: expected nothing more, found 'x'");
  EXPECT_EQ(error("{\"list\":[1,]}"), "s.json:1:12: list[1]: expected an integer, found ']'");
  EXPECT_EQ(error("{\"list\":[1}"), "s.json:1:11: list: expected ',' or ']', found '}'");
  EXPECT_EQ(error("{\"id\":1,}"), "s.json:1:9: expected a string, found '}'");
  EXPECT_EQ(error("{\"id\" 1}"), "s.json:1:7: expected ':', found a number");
  EXPECT_EQ(error("{id:1}"), "s.json:1:2: expected a string, found 'i'");
  EXPECT_EQ(error("{\"flag\":True}"), "s.json:1:9: flag: expected true or false, found 'T'");
  EXPECT_EQ(error("{\"flag\":true} // yes"), "s.json:1:15: expected nothing more, found '/'");
}

TEST(JsonReaderTest, RefusesEveryPrefixOfAText) {
  const std::string text = R"({"text":"a\u00e9\n","number":-12,"flag":false,"color":"red","list":[1,22]})";
  EXPECT_EQ(read(text).list.size(), 2U);
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_EQ(error(text.substr(0, length)).substr(0, 9), "s.json:1:") << length;
  }
}

TEST(JsonReaderTest, EndsDeepNestingAtOnce) {
  EXPECT_EQ(error("{\"list\":" + std::string(1'000'000, '[')),
            "s.json:1:10: list[0]: expected an integer, found an array");
}

}  // namespace
}  // namespace reprise::detail
