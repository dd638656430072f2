#include "io/json_reader.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "support/input_error.h"

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

TEST(JsonReaderTest, TellsWhatComesNext) {
  JsonReader in("[null, 7]", "s.json");
  EXPECT_TRUE(in.at(JsonKind::kArray));
  std::vector<std::int64_t> numbers;
  in.array([&] {
    if (in.at(JsonKind::kNull)) return in.null();
    numbers.push_back(in.integer());
  });
  EXPECT_EQ(numbers, std::vector<std::int64_t>{7});
  EXPECT_EQ(input_error([] { JsonReader("7", "s.json").null(); }), "s.json:1:1: expected null, found an integer");
}

TEST(JsonReaderTest, DecodesEscapes) {
  EXPECT_EQ(read_string(R"("\"\\\/\b\f\n\r\t")"), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(read_string(R"("\u0041\u00e9\u20AC\uD83D\ude00")"), "A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
  EXPECT_EQ(read_string(R"("\u0000")"), std::string(1, '\0'));
  EXPECT_EQ(read_string("\"caf\xC3\xA9\x7F\""), "caf\xC3\xA9\x7F");
}

TEST(JsonReaderTest, RefusesBrokenStrings) {
  const std::string broken = "syntax error while parsing value - invalid string: ";
  EXPECT_EQ(string_error("\"abc"), "s.json:1:14: the text ends too early; is the file complete?");
  EXPECT_EQ(string_error("\"a\\"), "s.json:1:12: " + broken + "forbidden character after backslash");
  EXPECT_EQ(string_error(R"("\x")"), "s.json:1:11: " + broken + "forbidden character after backslash");
  EXPECT_EQ(string_error(R"("\u12G4")"), "s.json:1:14: " + broken + "'\\u' must be followed by 4 hex digits");
  EXPECT_EQ(string_error(R"("\u12)"), "s.json:1:14: " + broken + "'\\u' must be followed by 4 hex digits");
  EXPECT_EQ(string_error(R"("\u+123")"), "s.json:1:12: " + broken + "'\\u' must be followed by 4 hex digits");
  const std::string high = broken + "surrogate U+D800..U+DBFF must be followed by U+DC00..U+DFFF";
  EXPECT_EQ(string_error(R"("\uD83D")"), "s.json:1:16: " + high);
  EXPECT_EQ(string_error(R"("\uD83D\u0041")"), "s.json:1:21: " + high);
  EXPECT_EQ(string_error(R"("\uD83D\n")"), "s.json:1:17: " + high);
  EXPECT_EQ(string_error(R"("\uDE00")"),
            "s.json:1:15: " + broken + "surrogate U+DC00..U+DFFF must follow U+D800..U+DBFF");
  EXPECT_EQ(string_error("\"a\nb\""),
            "s.json:1:11: " + broken + "control character U+000A (LF) must be escaped to \\u000A or \\n");
}

TEST(JsonReaderTest, RefusesInvalidUtf8) {
  const std::string not_utf8 = "syntax error while parsing value - invalid string: ill-formed UTF-8 byte";
  for (const char* bytes : {"\x80", "\xC0\x80", "\xFF"}) {
    EXPECT_EQ(string_error(std::string("\"") + bytes + "\""), "s.json:1:10: " + not_utf8);
  }
  for (const char* bytes : {"\xC3", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80"}) {
    EXPECT_EQ(string_error(std::string("\"") + bytes + "\""), "s.json:1:11: " + not_utf8);
  }
}

TEST(JsonReaderTest, ReadsTheWholeRangeOf64Bits) {
  EXPECT_EQ(read_number("9223372036854775807"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(read_number("-9223372036854775808"), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(read_number("-0"), 0);
}

TEST(JsonReaderTest, RefusesWhatIsNoInteger) {
  for (const char* number : {"1.0", "1e30", "0E0", "-2.5"}) {
    EXPECT_EQ(number_error(number),
              "s.json:1:11: number: expected an integer, found a number with a point or an exponent")
        << number;
  }
  for (const char* number : {"9223372036854775808", "-9223372036854775809", "99999999999999999999999999"}) {
    EXPECT_EQ(number_error(number), "s.json:1:11: number: expected an integer, found an integer beyond 64 bits")
        << number;
  }
  EXPECT_EQ(number_error("1e999"), "s.json:1:15: a number beyond 64 bits");
  EXPECT_EQ(number_error(std::string(400, '9')), "s.json:1:410: a number beyond 64 bits");
  EXPECT_EQ(number_error("\"1\""), "s.json:1:11: number: expected an integer, found a string");
  EXPECT_EQ(number_error("null"), "s.json:1:11: number: expected an integer, found null");
}

TEST(JsonReaderTest, RefusesBrokenNumbers) {
  const std::string broken = "syntax error while parsing ";
  for (const char* number : {"00", "01"}) {
    EXPECT_EQ(number_error(number), "s.json:1:12: " + broken + "object - unexpected number literal; expected '}'")
        << number;
  }
  EXPECT_EQ(number_error("-007"), "s.json:1:13: " + broken + "object - unexpected number literal; expected '}'");
  EXPECT_EQ(number_error("-"), "s.json:1:12: " + broken + "value - invalid number; expected digit after '-'");
  EXPECT_EQ(number_error("1."), "s.json:1:13: " + broken + "value - invalid number; expected digit after '.'");
  EXPECT_EQ(number_error("+1"), "s.json:1:11: " + broken + "value - invalid literal");
  EXPECT_EQ(number_error("NaN"), "s.json:1:11: " + broken + "value - invalid literal");
  EXPECT_EQ(number_error("1 2"), "s.json:1:13: " + broken + "object - unexpected number literal; expected '}'");
  EXPECT_EQ(number_error("0x10"), "s.json:1:12: " + broken + "object - invalid literal");
}

TEST(JsonReaderTest, RefusesSizesAndIdsOutOfRange) {
  EXPECT_EQ(error("{\"list\":[4,-1]}"), "s.json:1:12: list[1]: negative: -1");
  EXPECT_EQ(error("{\"id\":-1}"), "s.json:1:7: id: negative: -1");
  EXPECT_EQ(error("{\"id\":4294967295}"), "s.json:1:7: id: too large for an index: 4294967295");
  EXPECT_EQ(read("{\"id\":4294967294}").id, 4294967294U);
}

TEST(JsonReaderTest, RefusesUnknownAndRepeatedKeys) {
  EXPECT_EQ(error("{\"flag\":true,\n \"numbr\":1}"),
            "s.json:2:2: unknown key 'numbr'; the known keys are 'text', 'number', 'flag', 'id', 'color', 'list'");
  EXPECT_EQ(error("{\"id\":1,\"id\":1}"), "s.json:1:9: key 'id' comes twice");
  EXPECT_EQ(error("{\"color\":\"green\"}"), "s.json:1:10: color: must be one of 'red', 'blue'");
}

TEST(JsonReaderTest, RefusesOtherKindsOfValues) {
  EXPECT_EQ(error("[]"), "s.json:1:1: expected an object, found an array");
  EXPECT_EQ(error(" 7"), "s.json:1:2: expected an object, found an integer");
  EXPECT_EQ(error("{\"list\":{}}"), "s.json:1:9: list: expected an array, found an object");
  EXPECT_EQ(error("{\"list\":[1, 2 ,true]}"), "s.json:1:16: list[2]: expected an integer, found true or false");
  EXPECT_EQ(error("{\"id\":1,\"list\" : [3],\n\"flag\" :\t0}"),
            "s.json:2:10: flag: expected true or false, found an integer");
}

TEST(JsonReaderTest, RefusesBrokenStructure) {
  const std::string broken = "syntax error while parsing ";
  EXPECT_EQ(error(""), "s.json:1:1: the text ends too early; is the file complete?");
  EXPECT_EQ(error("\xEF\xBB\xBF{}"), "s.json:1:1: begins with a byte order mark");
  EXPECT_EQ(error("{} x"), "s.json:1:4: " + broken + "value - invalid literal");
  EXPECT_EQ(error("{}\n{}"), "s.json:2:1: " + broken + "value - unexpected '{'; expected end of input");
  for (const std::string after : {"", "x", "{"}) {
    EXPECT_EQ(error("{}\n" + std::string(1, '\0') + after), "s.json:2:1: not text: byte 0");
  }
  EXPECT_EQ(error("{\"list\":[1,]}"),
            "s.json:1:12: " + broken + "value - unexpected ']'; expected '[', '{', or a literal");
  EXPECT_EQ(error("{\"list\":[1}"), "s.json:1:11: " + broken + "array - unexpected '}'; expected ']'");
  EXPECT_EQ(error("{\"id\":1,}"), "s.json:1:9: " + broken + "object key - unexpected '}'; expected string literal");
  EXPECT_EQ(error("{\"id\" 1}"),
            "s.json:1:7: " + broken + "object separator - unexpected number literal; expected ':'");
  EXPECT_EQ(error("{id:1}"), "s.json:1:2: " + broken + "object key - invalid literal");
  EXPECT_EQ(error("{\"flag\":True}"), "s.json:1:9: " + broken + "value - invalid literal");
  EXPECT_EQ(error("{\"flag\":true} // yes"), "s.json:1:15: " + broken + "value - invalid literal");
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
            "s.json:1:16: nested deeper than anything in our formats");
  EXPECT_EQ(error(std::string(1'000'000, '[')), "s.json:1:9: nested deeper than anything in our formats");
  EXPECT_EQ(error("[[[[[[[[]]]]]]]]"), "s.json:1:1: expected an object, found an array");
}

}  // namespace
}  // namespace reprise::detail
