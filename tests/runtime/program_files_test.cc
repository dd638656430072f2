// Tests programs and parameters as files, and runs a program that was read from a file.
#include "runtime/files/program_files.h"

#include <ATen/Functions.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "reprise/error.h"
#include "reprise/io.h"
#include "reprise/solve.h"
#include "runtime/engine/executor.h"
#include "runtime/program/program_queries.h"
#include "runtime/small_program.h"
#include "support/input_error.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ProgramFiles : public ::testing::Test {
 protected:
  ProgramFiles() : folder_(fs::temp_directory_path() / ("reprise_program_" + std::to_string(::getpid()))) {
    fs::create_directory(folder_);
    write_text(program(), test::small_program());
  }
  ~ProgramFiles() override { fs::remove_all(folder_); }

  [[nodiscard]] fs::path program() const { return folder_ / "net.program.json"; }
  [[nodiscard]] fs::path parameters() const { return folder_ / "net.parameters.pt"; }
  [[nodiscard]] std::string load_error() const {
    return input_error([&] { static_cast<void>(load_program(program())); });
  }

  const std::vector<std::string> names_{"unused", "w"};
  const fs::path folder_;
};

// libtorch exports parts of std::filesystem. A program that uses these and takes the rest from its own library crashes.
TEST_F(ProgramFiles, LieOnOneFileSystem) {
  const auto home_of = [](auto* function) {
    Dl_info info{};
    return dladdr(reinterpret_cast<void*>(function), &info) != 0 ? std::string(info.dli_fname) : "nowhere";
  };
  fs::path (*temporary)() = fs::temp_directory_path;
  bool (*create)(const fs::path&) = fs::create_directory;
  EXPECT_THAT(home_of(temporary), HasSubstr("libstdc++"));
  EXPECT_THAT(home_of(create), HasSubstr("libstdc++"));
}

TEST_F(ProgramFiles, ComeBackAsTheyWere) {
  const at::Tensor unused = at::arange(4, at::kLong);
  const at::Tensor w = at::rand({2, 3});
  save_state(parameters(), names_, std::vector{unused, w});
  const ProgramFile file = load_program(program());
  EXPECT_EQ(file.step.state_names, names_);
  EXPECT_TRUE(at::equal(file.state[0], unused));
  EXPECT_TRUE(at::equal(file.state[1], w));
  EXPECT_EQ(parameters_path(program()), parameters());
}

TEST_F(ProgramFiles, Run) {
  const at::Tensor w = at::rand({2, 3});
  save_state(parameters(), names_, std::vector{at::zeros({1}), w});
  const ProgramFile file = load_program(program());
  const Solution solution = solve(make_graph(*file.step.program), bare_costs(*file.step.program), {.planner = "none"});
  const Executor executor(file.step.program, solution.plan);
  StepState state;
  const at::Tensor x = at::rand({2, 3});
  const auto outputs = executor.forward(std::vector{x, file.state[1]}, state);
  const auto gradients = executor.backward(std::vector{at::ones({})}, state);
  EXPECT_TRUE(at::equal(*outputs[0], at::mul(x, w).sum()));
  EXPECT_FALSE(gradients[0].has_value());
  EXPECT_TRUE(at::equal(*gradients[1], x));
}

TEST_F(ProgramFiles, ReadNothingBeyondAResult) {
  // The program reads the sum, which is one number, as if it were six numbers.
  write_text(program(),
             test::changed(test::small_program(), "\"forward_outputs\":[[3,1]]", "\"forward_outputs\":[[3,0]]"));
  save_state(parameters(), names_, std::vector{at::zeros({1}), at::rand({2, 3})});
  const ProgramFile file = load_program(program());
  const Executor executor(
      file.step.program,
      solve(make_graph(*file.step.program), bare_costs(*file.step.program), {.planner = "none"}).plan);
  StepState state;
  EXPECT_THROW(static_cast<void>(executor.forward(std::vector{at::rand({2, 3}), file.state[1]}, state)), InputError);
}

TEST_F(ProgramFiles, SayWhatIsWrong) {
  EXPECT_THAT(load_error(), HasSubstr("cannot read"));
  write_text(parameters(), "no tensors");
  EXPECT_THAT(load_error(), HasSubstr("is not a file of tensors by name"));
  save_state(parameters(), std::vector<std::string>{"unused"}, std::vector{at::zeros({1})});
  EXPECT_THAT(load_error(), HasSubstr("has no tensor 'w'"));
  save_state(parameters(), names_, std::vector{at::zeros({1}), at::rand({3, 2})});
  EXPECT_THAT(load_error(), HasSubstr("'w' is Float[3 2 ] strides [2 1 ], but the program needs Float[2 3 ]"));
  EXPECT_THROW(save_state(parameters(), names_, std::vector{at::zeros({1})}), InputError);
}

}  // namespace
}  // namespace reprise
