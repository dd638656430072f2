// Tests programs as text: writing gives the same text again, every kind of argument is read, and everything else is
// refused.
#include "runtime/files/program_io.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "reprise/error.h"
#include "reprise/io.h"
#include "runtime/files/program_text.h"
#include "runtime/kernels/kernel.h"
#include "runtime/small_program.h"
#include "support/input_error.h"

namespace reprise {
namespace {

using test::changed;
using test::small_program;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string error_of(const std::string& text) {
  return input_error([&] { static_cast<void>(parse_program(text, "net.program.json")); });
}

std::string call_of(const std::string& operator_name, const std::string& arguments) {
  return R"({"name":"more","call":{"operator":")" + operator_name + R"(","arguments":[)" + arguments +
         R"(]},"outputs":[[6,0]]},
)";
}

// The constant that one argument of the op "more" becomes.
c10::IValue constant_of(const std::string& operator_name, const std::string& arguments, std::size_t position) {
  const std::string text = small_program(call_of(operator_name, arguments), ",24");
  const StepProgram step = parse_program(text, "net.program.json");
  EXPECT_EQ(format_program(step), text);
  return step.program->ops[1].call->arguments[position].constant;
}

TEST(ProgramIo, GivesTheSameTextAgain) {
  const StepProgram step = parse_program(small_program(), "net.program.json");
  EXPECT_EQ(format_program(step), small_program());
  EXPECT_EQ(step.state_names, (std::vector<std::string>{"unused", "w"}));
  EXPECT_EQ(step.inputs, (std::vector<std::int32_t>{0, -2}));
  EXPECT_EQ(step.gradients, (std::vector<std::int32_t>{-1, 1}));
  const Program& program = *step.program;
  EXPECT_EQ(program.name, "small");
  EXPECT_EQ(program.values[0].residence, Residence::kResident);
  EXPECT_TRUE(program.values[3].held);
  EXPECT_EQ(program.ops[0].scope, "layer");
  EXPECT_EQ(program.ops[3].phase, Phase::kBackward);
  EXPECT_EQ(program.ops[4].workspace_bytes, 24);
  EXPECT_EQ(program.seeds[0]->geometry.dtype, at::kFloat);
}

TEST(ProgramIo, TheExampleOfTheDocumentIsWhatWeWrite) {
  const std::string document = read_text(REPRISE_SOURCE_DIR "/docs/formats.md");
  const std::size_t begin = document.find("{\n\"format\":\"reprise.program\"");
  ASSERT_NE(begin, std::string::npos);
  std::string text = document.substr(begin, document.find("```", begin) - begin);
  const std::string version = text.substr(text.find("\"torch\":"), text.find(",\"device\"") - text.find("\"torch\":"));
  text = changed(text, version, "\"torch\":\"" + detail::torch_version() + "\"");
  EXPECT_EQ(format_program(parse_program(text, "docs/formats.md")), text);
}

TEST(ProgramIo, KeepsEveryKindOfOp) {
  const std::string ops = R"({"name":"state","kind":"generator_state","once":true,"also_makes":[6]},
{"name":"random","once":true,"call":{"operator":"aten::bernoulli.p","arguments":[[2,0],{"double":"0.5"},null]},"outputs":[[7,0]],"generator_state":6,"also_makes":[8]},
{"name":"relu","call":{"operator":"aten::relu","arguments":[[7,0]]},"in_place_call":{"operator":"aten::relu_","arguments":[[7,0]]},"outputs":[[9,0]]},
{"name":"effect","kind":"effect","once":true,"also_reads":[1,8],"also_makes":[10]},
{"name":"first","call":{"operator":"aten::relu","arguments":[[9,0]]},"first_call":{"operator":"aten::abs","arguments":[[10,0]]},"outputs":[[11,0],null]},
)";
  std::string text = small_program(ops, ",5056,24,0,24,24,24");
  text = changed(text, "\"overwrites\":[]", "\"overwrites\":[[9,7],[10,1]]");
  text = changed(text, "\"new_contents\":[]", "\"new_contents\":[10]");
  const StepProgram step = parse_program(text, "net.program.json");
  EXPECT_EQ(format_program(step), text);
  EXPECT_EQ(step.program->ops[2].generator_state, value_id(6));
  EXPECT_EQ(step.program->values[9].overwrites, value_id(7));
  EXPECT_FALSE(step.program->ops[5].outputs[1].has_value());
}

TEST(ProgramIo, KeepsWorkspacesOfCallsOut) {
  StepProgram step = parse_program(small_program(), "net.program.json");
  step.program->ops[0].workspace_bytes = 7;
  EXPECT_EQ(format_program(step), small_program());
}

TEST(ProgramIo, KeepsNumbersExactly) {
  const auto alpha = [](const std::string& text) { return constant_of("aten::add.Tensor", "[2,0],[2,0]," + text, 2); };
  EXPECT_EQ(alpha("3").toInt(), 3);
  EXPECT_EQ(alpha("-9223372036854775808").toInt(), std::numeric_limits<std::int64_t>::min());
  EXPECT_TRUE(alpha("true").toBool());
  EXPECT_EQ(alpha(R"({"double":"0.1"})").toDouble(), 0.1);
  EXPECT_EQ(alpha(R"({"double":"5e-324"})").toDouble(), 5e-324);
  EXPECT_TRUE(std::signbit(alpha(R"({"double":"-0"})").toDouble()));
  EXPECT_EQ(alpha(R"({"double":"-inf"})").toDouble(), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(alpha(R"({"double":"nan"})").toDouble()));
}

TEST(ProgramIo, KeepsOtherConstants) {
  EXPECT_EQ(constant_of("aten::sum.dim_IntList", R"([2,0],{"ints":[0,-1]},false,null)", 1).toIntVector(),
            (std::vector<std::int64_t>{0, -1}));
  EXPECT_TRUE(constant_of("aten::sum.dim_IntList", R"([2,0],null,false,null)", 1).isNone());
  EXPECT_EQ(constant_of("aten::div.Tensor_mode", R"([2,0],[2,0],{"string":"floor"})", 2).toStringRef(), "floor");
  EXPECT_EQ(
      constant_of("aten::empty.memory_format", R"({"ints":[2,3]},6,null,{"device":"cpu"},false,null)", 3).toDevice(),
      at::Device(at::kCPU));
  EXPECT_EQ(
      constant_of("aten::upsample_bilinear2d.vec", R"([2,0],null,false,{"doubles":["2","0.5"]})", 3).toDoubleVector(),
      (std::vector<double>{2, 0.5}));
  const c10::IValue bools = constant_of("aten::convolution_backward",
                                        R"([2,0],[2,0],[2,0],null,{"ints":[1]},{"ints":[0]},{"ints":[1]},false,)"
                                        R"({"ints":[0]},1,{"bools":[true,false,true]})",
                                        10);
  EXPECT_EQ(bools.toBoolList().vec(), (std::vector<bool>{true, false, true}));
  const c10::IValue undefined = constant_of("aten::mul.Tensor", R"([2,0],{"undefined":true})", 1);
  EXPECT_TRUE(undefined.isTensor());
  EXPECT_FALSE(undefined.toTensor().defined());
}

TEST(ProgramIo, KeepsNumbersThatStandForTensors) {
  const auto number = [](const std::string& text) {
    return constant_of("aten::mul.Tensor", R"([2,0],{"number":)" + text + "}", 1).toTensor();
  };
  EXPECT_EQ(number("\"0.3\"").scalar_type(), at::kDouble);
  EXPECT_EQ(*number("\"0.3\"").const_data_ptr<double>(), 0.3);
  EXPECT_EQ(*number("7").const_data_ptr<std::int64_t>(), 7);
  EXPECT_EQ(number("true").scalar_type(), at::kBool);
  EXPECT_TRUE(number("7").unsafeGetTensorImpl()->is_wrapped_number());
}

TEST(ProgramIo, KeepsListsOfTensors) {
  const std::string ops =
      R"({"name":"cat","call":{"operator":"aten::cat","arguments":[{"list":[[2,0],[2,0]]},0]},"outputs":[[6,0]]},
{"name":"index","call":{"operator":"aten::index.Tensor","arguments":[[2,0],{"optional_list":[null,[2,0]]}]},"outputs":[[7,0]]},
)";
  const std::string text = small_program(ops, ",24,24");
  const StepProgram step = parse_program(text, "net.program.json");
  EXPECT_EQ(format_program(step), text);
  EXPECT_EQ(step.program->ops[1].call->arguments[0].kind, Argument::Kind::kTensorList);
  EXPECT_FALSE(step.program->ops[2].call->arguments[1].tensors[0].has_value());
}

TEST(ProgramIo, KeepsConstantTensors) {
  std::string text = small_program("", ",4");
  text = changed(text, "\"resident\":[0,1]", "\"resident\":[0,1,6]");
  text = changed(text, "\"constants\":[]", "\"constants\":[\n{\"use\":[6,1],\"bytes\":\"AACAPw==\"}]");
  const StepProgram step = parse_program(text, "net.program.json");
  EXPECT_EQ(format_program(step), text);
  EXPECT_EQ(*step.program->constants[0].second.const_data_ptr<float>(), 1.0F);
  EXPECT_THAT(error_of(changed(text, "AACAPw==", "AACAPw=")), HasSubstr("constants[0].bytes: not a text in base 64"));
  EXPECT_THAT(error_of(changed(text, "AACAPw==", "AACA")), HasSubstr("needs 4 bytes, there are 3"));
}

TEST(ProgramIo, RefusesWhatAFileCannotHold) {
  StepProgram step = parse_program(small_program(call_of("aten::add.Tensor", "[2,0],[2,0],1"), ",24"), "");
  step.program->ops[1].call->arguments[2].constant = c10::complex<double>(1, 2);
  try {
    static_cast<void>(format_program(step));
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("op 'more', aten::add, argument 'alpha'"), HasSubstr("Complex")));
  }
}

TEST(ProgramIo, SaysWhatIsWrongAndWhere) {
  const std::string good = small_program();
  const auto with = [&](const std::string& old, const std::string& by) { return error_of(changed(good, old, by)); };
  EXPECT_THAT(error_of(""), StartsWith("net.program.json:1:1: "));
  EXPECT_THAT(error_of(good.substr(0, good.size() / 2)), HasSubstr("is the file complete?"));
  EXPECT_THAT(with("reprise.program", "reprise.graph"), HasSubstr("2:10: format: expected 'reprise.program'"));
  EXPECT_THAT(with("\"version\":1", "\"version\":3"), HasSubstr("version 3 is unknown"));
  EXPECT_THAT(with("\"version\":1", "\"version\":2"), HasSubstr("no op has a stream above 0"));
  EXPECT_THAT(with("aten::sum", "aten::no_such_operator"),
              AllOf(HasSubstr("ops[1].call: this libtorch has no operator 'aten::no_such_operator'"),
                    HasSubstr("written by torch " + detail::torch_version() + ", this is torch ")));
  EXPECT_THAT(with("\"device\":\"cpu\"", "\"device\":\"cuda:63\""),
              AllOf(HasSubstr("captured for cuda:63"), HasSubstr("capture it again with the model on the device")));
  EXPECT_THAT(with("\"device\":\"cpu\"", "\"device\":\"abacus\""), HasSubstr("'abacus' is not a device"));
  EXPECT_THAT(with("[[2,0],null]", "[[2,7],null]"), HasSubstr("geometry 7 is unknown"));
  EXPECT_THAT(with("[[2,0],null]", "[[9,0],null]"), HasSubstr("ops[1].call.arguments[0][0]: value 9 is unknown"));
  EXPECT_THAT(with("[[2,0],null]", "[[2],null]"), HasSubstr("expected [value, geometry]"));
  EXPECT_THAT(with("[[2,0],null]", "[[2,0],null,1]"), HasSubstr("takes 2 arguments, there are 3"));
  EXPECT_THAT(with("[[2,0],null]", "[7,null]"), HasSubstr("argument 0 should be 'Tensor self'"));
  EXPECT_THAT(with("[[2,0],null]", "[[2,0],{}]"), HasSubstr("an argument has one key"));
  EXPECT_THAT(with("[[2,0],null]", R"([[2,0],{"double":"1.5x"}])"), HasSubstr("'1.5x' is not a number"));
  EXPECT_THAT(with("[[0,0],[1,0]]", "[[0,0]]"), HasSubstr("lacks argument 'other'"));
  EXPECT_THAT(with("\"float32\"", "\"qint8\""), HasSubstr("'qint8' is not a type of elements"));
  EXPECT_THAT(with("\"strides\":[3,1]", "\"strides\":[3]"), HasSubstr("as many sizes as strides"));
  EXPECT_THAT(with("\"strides\":[3,1]", "\"strides\":[4611686018427387904,1]"), HasSubstr("2^54"));
  EXPECT_THAT(with("\"state\":1}\n],\n\"forward", "\"state\":2}\n],\n\"forward"), HasSubstr("`state` has 2 names"));
  EXPECT_THAT(with("\"batch\":0", "\"batch\":70000"), HasSubstr("a batch cannot have so many"));
  EXPECT_THAT(with(",\"batch\":0", ""), HasSubstr("an input needs a `state` or a `batch`"));
}

TEST(ProgramIo, FillsInArgumentsThatOperatorsGotSince) {
  const StepProgram step = parse_program(changed(small_program(), "[[2,0],null]", "[[2,0]]"), "net.program.json");
  EXPECT_EQ(step.program->ops[1].call->arguments.size(), 2U);
  EXPECT_EQ(format_program(step), small_program());
}

TEST(ProgramIo, RefusesProgramsThatNoExecutorCanRun) {
  const std::string good = small_program();
  const auto with = [&](const std::string& old, const std::string& by) { return error_of(changed(good, old, by)); };
  EXPECT_THAT(with("\"resident\":[0,1]", "\"resident\":[0]"), HasSubstr("net.program.json: "));
  EXPECT_THAT(with("\"resident\":[0,1]", "\"resident\":[0,1,2]"), HasSubstr("which exists from the start"));
  EXPECT_THAT(with("{\"use\":[1,0],\"state\":1}\n]", "{\"use\":[0,0],\"state\":1}\n]"), HasSubstr("is given twice"));
  EXPECT_THAT(with("{\"use\":[1,0],\"state\":1}\n]", "{\"use\":null,\"state\":1}\n]"),
              HasSubstr("no input or constant provides it"));
  EXPECT_THAT(with("\"also_makes\":[4]", "\"also_makes\":[]"), HasSubstr("net.program.json: "));
  EXPECT_THAT(with("\"seeds\":[[4,1]]", "\"seeds\":[[5,0]]"), HasSubstr("the caller's op does not make value 5"));
  EXPECT_THAT(with("\"forward_outputs\":[[3,1]]", "\"forward_outputs\":[]"), HasSubstr("there is no loss"));
  EXPECT_THAT(with("\"forward_outputs\":[[3,1]]", "\"forward_outputs\":[[2,0]]"), HasSubstr("does not read value 2"));
  EXPECT_THAT(with("\"kind\":\"hand_over\"", "\"kind\":\"call\""), HasSubstr("op 4 'hand_over': has no call"));
  EXPECT_THAT(with("[4,2]", "[4,0]"), HasSubstr("reads value 4 as Float[2 3 ] strides [3 1 ], beyond what is given"));
  const auto more = [&](const std::string& op) { return error_of(small_program(op, ",24")); };
  EXPECT_THAT(more(R"({"name":"s","kind":"generator_state","once":true,"also_reads":[2]},)"
                   R"({"name":"m","call":{"operator":"aten::relu","arguments":[[2,0]]},"outputs":[[6,0]]},)"),
              HasSubstr("so it makes one value"));
  EXPECT_THAT(more(R"({"name":"e","kind":"effect","once":true,"also_reads":[1],"also_makes":[6]},)"),
              HasSubstr("value 6 overwrites nothing"));
  EXPECT_THAT(more(R"({"name":"m","call":{"operator":"aten::relu","arguments":[[2,0]]},"generator_state":2,)"
                   R"("outputs":[[6,0]]},)"),
              HasSubstr("value 2 is not a state of a generator"));
  EXPECT_THAT(
      more(R"({"name":"m","call":{"operator":"aten::cat","arguments":[{"list":[null]},0]},"outputs":[[6,0]]},)"),
      HasSubstr("`optional_list`"));
  EXPECT_THAT(error_of(changed(small_program(call_of("aten::relu", "[2,0]"), ",24"), "\"overwrites\":[]",
                               "\"overwrites\":[[6,2]]")),
              HasSubstr("no `in_place_call`"));
  EXPECT_THAT(more(R"({"name":"m","call":{"operator":"aten::relu","arguments":[[2,0]]},"outputs":[[6,0]],)"
                   R"("added_seed":1,"added_to":2},)"),
              HasSubstr("adds a value that it does not read"));
}

// A file may contain anything. Whatever is removed or replaced, the reader must answer with a program or an error.
TEST(ProgramIo, AnswersToSpoiledText) {
  const std::string good =
      small_program(call_of("aten::sum.dim_IntList", R"([2,0],{"ints":[0,-1]},false,null)"), ",24");
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const char* by : {"", "0", "[", "\"", "9999999999"}) {
      std::string text = good;
      text.replace(i, 1, by);
      static_cast<void>(error_of(text));
    }
  }
}

// At one batch size a tensor fills its memory blocks, at another it does not. The descriptions of the two calls must
// differ only in the batch, so they do not name the size of the memory if the tensor just does not fill its last block.
TEST(Kernel, SaysNothingOfBlocksThatAreNotFull) {
  StepProgram step = parse_program(small_program(), "net.program.json");
  Program& program = *step.program;
  const Kernel kernel(*program.ops.front().call);
  const std::string exact = kernel.describe(program);
  program.device = at::kCUDA;
  program.values[0].bytes = 512;
  EXPECT_EQ(kernel.describe(program), exact);
  program.values[0].bytes = 1024;  // Now it is a part of a larger tensor.
  EXPECT_THAT(kernel.describe(program), HasSubstr(" of 1024"));
}

TEST(ProgramText, BytesInBase64) {
  const auto text = [](const std::string& bytes) {
    return detail::bytes_text({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  };
  EXPECT_EQ(text(""), "");
  EXPECT_EQ(text("f"), "Zg==");
  EXPECT_EQ(text("fo"), "Zm8=");
  EXPECT_EQ(text("foobar"), "Zm9vYmFy");
  for (const std::string bytes : {"", "f", "fo", "foobar", "\xff\xfe"})
    EXPECT_EQ(detail::bytes_from(text(bytes)), bytes);
  for (const std::string bad : {"Zg", "Zg=a", "====", "Z===", "Zg= "}) EXPECT_EQ(detail::bytes_from(bad), std::nullopt);
}

}  // namespace
}  // namespace reprise
