// Tests steps of any size as text and as files: what is read, what is refused, and training at other sizes.
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "reprise/io.h"
#include "reprise/torch/training_step.h"
#include "runtime/files/family_io.h"
#include "runtime/files/program_files.h"
#include "runtime/small_family.h"
#include "runtime/small_program.h"
#include "support/input_error.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;
using test::changed;
using test::small_family;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Sizes = std::vector<std::int64_t>;

// The first error of a reader that goes on to make the step at a size.
std::string error_of(const std::string& text, std::int64_t rows = 5) {
  return input_error([&] { static_cast<void>(parse_family(text, "net.program.json").at(Sizes{rows})); });
}

TEST(FamilyFiles, GiveTheSameTextAgain) {
  const StepFamily step = parse_family(small_family(), "net.program.json");
  EXPECT_EQ(format_family(step), small_family());
  EXPECT_EQ(step.traced_at(), Sizes{4});
  EXPECT_EQ(step.inputs, (std::vector<std::int32_t>{0, -1}));
  EXPECT_EQ(step.gradients, (std::vector<std::int32_t>{-1, 0}));
  EXPECT_TRUE(is_family(small_family()));
  EXPECT_FALSE(is_family(test::small_program()));
}

TEST(FamilyFiles, TheExampleOfTheDocumentIsWhatWeWrite) {
  const std::string document = read_text(REPRISE_SOURCE_DIR "/docs/formats.md");
  const std::size_t begin = document.find("{\n\"format\":\"reprise.family\"");
  ASSERT_NE(begin, std::string::npos);
  const std::string text = document.substr(begin, document.find("```", begin) - begin);
  EXPECT_EQ(changed(text, "2.13.0", detail::torch_version()), small_family());
}

TEST(FamilyFiles, AreProgramsAtEverySize) {
  const StepFamily step = parse_family(small_family(), "net.program.json");
  for (const std::int64_t rows : {2, 7, 63}) {
    const StepProgram here = step.at(Sizes{rows});
    EXPECT_EQ(here.program->values[0].bytes, 12 * rows);
    EXPECT_EQ(here.program->inputs[0]->geometry.sizes, (Sizes{rows, 3}));
    EXPECT_EQ(here.program->ops[0].call->arguments[0].tensors[0]->geometry.sizes, (Sizes{rows, 3}));
    EXPECT_EQ(step.sizes_of(std::vector{at::zeros({rows, 3})}), Sizes{rows});
  }
}

TEST(FamilyFiles, SayForWhichSizesTheyHold) {
  const StepFamily step = parse_family(small_family(), "net.program.json");
  const auto error = [&](std::vector<at::Tensor> batch) {
    return input_error([&] { static_cast<void>(step.sizes_of(batch)); });
  };
  EXPECT_THAT(
      error({at::zeros({64, 3})}),
      AllOf(HasSubstr("'product' was exported for other sizes than those of this batch, (64, 3)"),
            HasSubstr("It holds where batch[0] is (batch[0].size(0), 3), if batch[0].size(0) is at least 2, and "
                      "(batch[0].size(0) < 64)")));
  EXPECT_THAT(error({at::zeros({1, 3})}), HasSubstr("(1, 3)"));
  EXPECT_THAT(error({at::zeros({5, 4})}), HasSubstr("(5, 4)"));
  EXPECT_THAT(error({at::zeros({5})}), HasSubstr("(5)"));
  EXPECT_THAT(error({at::zeros({})}), HasSubstr("()"));
  EXPECT_THAT(error({at::Tensor()}), HasSubstr("()"));
  EXPECT_THAT(error({}), HasSubstr("of this batch, "));
}

TEST(FamilyFiles, SayWhatIsWrongAndWhere) {
  const std::string good = small_family();
  const auto with = [&](const std::string& old, const std::string& by) { return error_of(changed(good, old, by)); };
  EXPECT_THAT(error_of(good.substr(0, good.size() / 2)), HasSubstr("is the file complete?"));
  EXPECT_THAT(with("\"version\":1", "\"version\":2"), HasSubstr("version 2 is unknown"));
  EXPECT_THAT(with("{\"batch\":0,\"dimension\":0,\"here\":4,\"least\":2}", ""), HasSubstr("has a size that varies"));
  EXPECT_THAT(with("\"dimension\":0", "\"dimension\":64"), HasSubstr("cannot have so many dimensions"));
  EXPECT_THAT(with("64,\"less\"", "\"less\""), HasSubstr("conditions[0]"));
  EXPECT_THAT(with("64,\"less\"", "64"), HasSubstr("an expression has 2 results"));
  EXPECT_THAT(with("[{\"symbol\":0}]", "[{\"symbol\":1}]"), HasSubstr("an expression over an unknown symbol"));
  EXPECT_THAT(with("[{\"symbol\":0}]", "[\"symbol\"]"), HasSubstr("a symbol an object with its position"));
  EXPECT_THAT(with("\"multiply\"", "\"power\""), HasSubstr("computed[1]"));
  EXPECT_THAT(with("[{\"computed\":0},3]", "[{\"computed\":2},3]"),
              HasSubstr("geometries[0].sizes[0].computed: `computed` has 2 expressions"));
  EXPECT_THAT(with("[{\"computed\":0},3]", "[-2305843009213693952,3]"), HasSubstr("geometries[0].sizes[0]"));
  EXPECT_THAT(with("{\"ints\":[0]}", "{\"ints\":[-2305843009213693952]}"), HasSubstr("cannot be told from names"));
  EXPECT_THAT(with("[3,2]],\n\"seeds\"", "[7,2]],\n\"seeds\""), HasSubstr("memory 7 is unknown: `memory` has 7"));
  EXPECT_THAT(with("aten::sum\"", "aten::no_such_operator\""),
              HasSubstr("forward[1].call: this libtorch has no operator"));
  EXPECT_THAT(with("\"aten::sum\",\"arguments\":[[2,0],null]", "\"aten::item\",\"arguments\":[[2,0]]"),
              HasSubstr("forward[1]"));
  EXPECT_THAT(with("\"batch\":0}", "\"batch\":0,\"state\":0}"), HasSubstr("needs a `state` or a `batch`"));
  EXPECT_THAT(with("\"variable\":1", "\"variable\":9"), HasSubstr("gradients[1].variable: `geometries` has 4"));
  EXPECT_THAT(with("\"elsewhere\":[]", R"("elsewhere":[{"memory":0,"device":"abacus"}])"), HasSubstr("'abacus'"));
}

TEST(FamilyFiles, RefuseStepsThatNoBuilderCanBeTold) {
  const std::string good = small_family();
  const auto with = [&](const std::string& old, const std::string& by) { return error_of(changed(good, old, by)); };
  EXPECT_THAT(with("\"arguments\":[[2,0],null]", "\"arguments\":[[5,0],null]"),
              HasSubstr("call 'sum': memory 5 is used before it is made"));
  EXPECT_THAT(with("\"outputs\":[[2,0]]", "\"outputs\":[[1,0]]"), HasSubstr("call 'mul': memory 1 exists already"));
  EXPECT_THAT(with("\"outputs\":[[5,0]]", "\"outputs\":[[2,0]]"), HasSubstr("memory 2 exists already"));
  EXPECT_THAT(with("{\"use\":[0,0],\"batch\":0}", "{\"use\":[2,0],\"batch\":0}"), HasSubstr("inputs: memory 2"));
  EXPECT_THAT(with("\"seeds\":[[4,2]]", "\"seeds\":[[3,2]]"), HasSubstr("seeds: memory 3 is not a seed"));
  EXPECT_THAT(with("{\"use\":null},\n", ""), HasSubstr("2 inputs and 1 gradients"));
  EXPECT_THAT(with("\"seeds\":[[4,2]]", "\"seeds\":[]"), HasSubstr("value"));  // that nobody gives
  EXPECT_THAT(with("\"outputs\":[[3,2]],\n\"seeds\"", "\"outputs\":[],\n\"seeds\""), HasSubstr("there is no loss"));
}

TEST(FamilyFiles, RefuseSizesThatAreNotPossible) {
  const std::string good = small_family();
  const auto rows = [&](const std::string& expression, std::int64_t size) {
    return error_of(changed(good, "[{\"symbol\":0}]", expression), size);
  };
  EXPECT_THAT(rows("[{\"symbol\":0},-9,\"add\"]", 5), HasSubstr("not possible"));
  EXPECT_THAT(rows("[{\"symbol\":0},1152921504606846976,\"multiply\"]", 4), HasSubstr("not possible"));
  EXPECT_THAT(rows("[{\"symbol\":0},4611686018427387904,\"multiply\"]", 5), HasSubstr("too large"));
  EXPECT_THAT(rows("[1,{\"symbol\":0},5,\"modulo\",\"divide\"]", 5), HasSubstr("divides by zero"));
  EXPECT_THAT(rows("[-9223372036854775808,-1,\"divide\"]", 5), HasSubstr("too large"));
  EXPECT_THAT(error_of(changed(good, "12,\"multiply\"", "-12,\"multiply\"")), HasSubstr("bytes at these sizes"));
}

// A file may contain anything. Whatever is removed or replaced, the reader, or the step at a size, must answer with a
// program or an error.
TEST(FamilyFiles, AnswerToSpoiledText) {
  const std::string good = small_family();
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const char* by : {"", "0", "[", "\"", "9999999999"}) {
      std::string text = good;
      text.replace(i, 1, by);
      static_cast<void>(error_of(text));
    }
  }
}

class FamilySteps : public ::testing::Test {
 protected:
  FamilySteps() : folder_(fs::temp_directory_path() / ("reprise_family_" + std::to_string(::getpid()))) {
    fs::create_directory(folder_);
    write(small_family());
    save_state(folder_ / "net.parameters.pt", std::vector<std::string>{"w"}, std::vector{w_});
  }
  ~FamilySteps() override { fs::remove_all(folder_); }

  void write(const std::string& text) const { write_text(folder_ / "net.program.json", text); }
  [[nodiscard]] TrainingStep load() const { return load_step((folder_ / "net.program.json").string()); }

  const at::Tensor w_ = at::rand({3});
  const fs::path folder_;
};

TEST_F(FamilySteps, TrainAtEverySize) {
  TrainingStep step = load();
  for (const std::int64_t rows : {4, 9, 2, 63, 9}) {
    SCOPED_TRACE(rows);
    const at::Tensor x = at::rand({rows, 3});
    EXPECT_TRUE(at::equal(step.run({x}), at::mul(x, w_).sum()));
    at::Tensor parameter = step.parameters().at(0);
    EXPECT_TRUE(at::equal(parameter.grad(), at::mul(x, at::ones({}).expand({rows, 3})).sum(0)));
    parameter.mutable_grad().reset();
    EXPECT_EQ(step.measured_peak_bytes(), step.summary().peak_bytes);
  }
}

TEST_F(FamilySteps, RefuseOtherBatches) {
  TrainingStep step = load();
  EXPECT_THAT(input_error([&] { step.run({at::rand({64, 3})}); }), HasSubstr("exported for other sizes"));
  EXPECT_THAT(input_error([&] { step.run({at::rand({5, 3}).to(at::kDouble)}); }), HasSubstr("should be Float[5 3 ]"));
  static_cast<void>(step.run({at::rand({5, 3})}));
}

TEST_F(FamilySteps, RefuseASizeThatDoesNotFitWithTheLargestThatDoes) {
  TrainingStep step = load();
  const auto peak_of = [&](std::int64_t rows) {
    static_cast<void>(step.run({at::rand({rows, 3})}));
    return step.measured_peak_bytes();
  };
  static_cast<void>(peak_of(4));  // makes the gradient
  const std::int64_t budget = peak_of(40);
  step.plan({.budget_bytes = budget});
  const std::string refusal = input_error([&] { step.run({at::rand({60, 3})}); });
  EXPECT_THAT(refusal, HasSubstr("This budget is enough if batch[0].size(0) is at most 40"));
  EXPECT_EQ(peak_of(40), budget);
  EXPECT_THAT(input_error([&] { step.run({at::rand({41, 3})}); }), HasSubstr("is at most 40"));
}

TEST_F(FamilySteps, SayWhichFileIsWrong) {
  write(changed(small_family(), "\"here\":4", "\"here\":1"));
  EXPECT_THAT(input_error([&] { static_cast<void>(load()); }),
              AllOf(HasSubstr("net.program.json"), HasSubstr("does not hold where")));
  write(changed(small_family(), "\"seeds\":[[4,2]]", "\"seeds\":[]"));
  EXPECT_THAT(input_error([&] { static_cast<void>(load()); }), HasSubstr("net.program.json: "));
}

}  // namespace
}  // namespace reprise
