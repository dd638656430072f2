#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "reprise/io.h"
#include "support/input_error.h"

namespace reprise {
namespace {

// x, w -> conv -> 5 -> relu -> 9 -> split -> 7, 8
constexpr std::string_view kAuthorsExample =
    "6 6\n"
    "1 400 0\n"
    "2 36 /conv/W\n"
    "5 100 _\n"
    "9 100 _\n"
    "7 60 _\n"
    "8 40 _\n"
    "forward\n2 1\n1 _\n2 _\n5\nConvolution2DFunction\n{\"stride\": 1}\n"
    "forward\n1 1\n5 _\n9\nReLU\n{}\n"
    "forward\n2 2\n9 _\n9 _\n7\n8\nSplit\n{}\n"
    "backward\n3 2\n5 gradient\n1 input\n2 input\n1\n2\nConvolution2DFunction\n{}\n"
    "backward\n2 1\n9 gradient\n9 output\n5\nReLU\n{}\n"
    "backward\n4 2\n7 gradient\n8 gradient\n9 input\n7 output\n9\n9\nSplit\n{}\n";

std::string replaced(const std::string& old_text, const std::string& new_text) {
  std::string text(kAuthorsExample);
  return text.replace(text.find(old_text), old_text.size(), new_text);
}

std::string authors_text_error(const std::string& text) {
  return input_error([&] { static_cast<void>(parse_authors_text(text, "net.txt")); });
}

TEST(AuthorsTextTest, ForwardFunctionsBecomeOps) {
  const auto [graph, costs] = parse_authors_text(kAuthorsExample, "net.txt");
  EXPECT_TRUE(graph.forward_only());
  ASSERT_EQ(graph.num_ops(), 3U);
  ASSERT_EQ(graph.num_values(), 4U);  // The data and the parameters do not become values.
  EXPECT_EQ(graph.op_name(op_id(0)), "Convolution2DFunction_5");
  EXPECT_EQ(graph.op_name(op_id(2)), "Split_7");
  EXPECT_EQ(costs.time_ns[0], 10);
  EXPECT_EQ(costs.time_ns[1], 1);
  EXPECT_TRUE(graph.inputs(op_id(0)).empty());
  EXPECT_THAT(graph.inputs(op_id(2)), testing::ElementsAre(value_id(1)));  // The text names it twice.
  EXPECT_THAT(graph.outputs(op_id(2)), testing::ElementsAre(value_id(2), value_id(3)));
  EXPECT_EQ(costs.value_bytes[3], 40);
}

TEST(AuthorsTextTest, BackwardRecordsSayWhatTheGradientReads) {
  const auto [graph, costs] = parse_authors_text(kAuthorsExample, "net.txt");
  EXPECT_EQ(graph.backward_reads(op_id(0)), BackwardReads::kInputs);
  EXPECT_EQ(graph.backward_reads(op_id(1)), BackwardReads::kOutputs);
  EXPECT_EQ(graph.backward_reads(op_id(2)), BackwardReads::kBoth);
  EXPECT_EQ(parse_authors_text(replaced("9 output\n", "9 gradient\n"), "net.txt").graph.backward_reads(op_id(1)),
            BackwardReads::kInputs);
}

TEST(AuthorsTextTest, AcceptsLineEndsOfOtherSystemsAndBlankLinesAtTheEnd) {
  std::string text;
  for (const char c : kAuthorsExample) text += c == '\n' ? std::string("\r\n") : std::string(1, c);
  EXPECT_EQ(parse_authors_text(text + "\n \n", "net.txt"), parse_authors_text(kAuthorsExample, "net.txt"));
}

TEST(AuthorsTextTest, SortsRecordsThatAreOutOfOrder) {
  const auto [graph, costs] = parse_authors_text(
      "3 6\n1 1 _\n2 2 _\n3 4 _\n"
      "forward\n1 1\n2 _\n3\nC\n{}\n"
      "forward\n0 1\n1\nA\n{}\n"
      "forward\n1 1\n1 _\n2\nB\n{}\n"
      "backward\n1 0\n3 output\nC\n{}\nbackward\n0 0\nA\n{}\nbackward\n0 0\nB\n{}\n",
      "net.txt");
  EXPECT_EQ(graph.op_name(op_id(0)), "A_1");
  EXPECT_EQ(graph.op_name(op_id(1)), "B_2");
  EXPECT_EQ(graph.op_name(op_id(2)), "C_3");
  EXPECT_EQ(graph.backward_reads(op_id(2)), BackwardReads::kOutputs);
}

TEST(AuthorsTextTest, NamesTheOpsOfACycle) {
  EXPECT_EQ(
      authors_text_error("4 8\n1 1 _\n2 2 _\n3 4 _\n4 4 _\n"
                         "forward\n0 1\n1\nA\n{}\n"
                         "forward\n2 1\n1 _\n3 _\n2\nB\n{}\n"
                         "forward\n1 1\n2 _\n3\nC\n{}\n"
                         "forward\n1 1\n3 _\n4\nD\n{}\n"
                         "backward\n0 0\nA\n{}\nbackward\n0 0\nB\n{}\nbackward\n0 0\nC\n{}\nbackward\n0 0\nD\n{}\n"),
      "net.txt:11: a cycle: B_2 reads C_3 reads B_2");
}

TEST(AuthorsTextTest, RefusesBrokenRecords) {
  EXPECT_EQ(authors_text_error(""),
            "net.txt:1: the text ends, but 'N F', the numbers of variables and functions should follow");
  EXPECT_EQ(authors_text_error("6\n"), "net.txt:1: expected 'N F', the numbers of variables and functions");
  EXPECT_EQ(authors_text_error(replaced("6 6", "6 5")),
            "net.txt:1: an odd number of functions; each needs its backward one");
  EXPECT_EQ(authors_text_error(replaced("6 6", "7 6")), "net.txt:8: expected 'id bytes name' of a variable");
  EXPECT_EQ(authors_text_error(replaced("6 6", "6 4")), "net.txt:21: expected 'backward', found 'forward'");
  EXPECT_EQ(authors_text_error(replaced("5 100 _", "5 -100 _")),
            "net.txt:4: expected a number that is not negative and fits into 64 bits, found '-100'");
  EXPECT_EQ(authors_text_error(replaced("5 100 _", "5 1e30 _")),
            "net.txt:4: expected a number that is not negative and fits into 64 bits, found '1e30'");
  EXPECT_EQ(authors_text_error(replaced("5 100 _", "5 99999999999999999999 _")),
            "net.txt:4: expected a number that is not negative and fits into 64 bits, found '99999999999999999999'");
  EXPECT_EQ(authors_text_error(replaced("5 100 _", "2 100 _")), "net.txt:4: variable 2 comes twice");
  EXPECT_EQ(authors_text_error(replaced("2 _\n5\n", "2 _\n55\n")), "net.txt:12: unknown variable 55");
  EXPECT_EQ(authors_text_error(replaced("5 _\n9\n", "5 _\n5\n")), "net.txt:18: variable 5 is made twice");
  EXPECT_EQ(authors_text_error(replaced("1 1\n5 _\n9\n", "1 0\n5 _\n")),
            "net.txt:17: a forward function without outputs");
  EXPECT_EQ(authors_text_error(replaced("9 output", "9 outptu")),
            "net.txt:41: expected 'gradient', 'input' or 'output', found 'outptu'");
  EXPECT_EQ(authors_text_error(std::string(kAuthorsExample) + "forward\n"), "net.txt:55: expected nothing more");
  EXPECT_EQ(authors_text_error(replaced("/conv/W", "/c\xFF")), "net.txt:3: not UTF-8");
  EXPECT_EQ(authors_text_error(replaced("9 100 _", "9 999999999999999999 _")),
            "net.txt: bytes: the sum over the graph is 2^59 or more");
}

TEST(AuthorsTextTest, ClaimsOfSizeCostNothing) {
  EXPECT_THAT(authors_text_error("9000000000000000000 9000000000000000000\n1 1 _\n"),
              testing::StartsWith("net.txt:3: the text ends"));
  EXPECT_THAT(authors_text_error("0 2\nforward\n9000000000000000000 1\n"),
              testing::StartsWith("net.txt:4: the text ends"));
}

TEST(AuthorsTextTest, RefusesEveryPrefixOfAText) {
  for (std::size_t length = 0; length + 3 < kAuthorsExample.size(); ++length) {
    EXPECT_THAT(authors_text_error(std::string(kAuthorsExample.substr(0, length))), testing::StartsWith("net.txt:"))
        << length;
  }
}

}  // namespace
}  // namespace reprise
