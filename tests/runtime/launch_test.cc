// Tests the operator that runs generated kernels: what it reads, makes and changes, the memory it takes while it runs,
// and what it refuses.
#include "runtime/kernels/launch.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/device/meter.h"
#include "runtime/kernels/kernel.h"
#include "runtime/kernels/kernel_file.h"
#include "runtime/program/program_builder.h"
#include "support/input_error.h"

namespace reprise {
namespace {

using Kind = LaunchArgument::Kind;
using ::testing::HasSubstr;

constexpr std::int64_t kCount = 6;
const Geometry kMatrix{.dtype = at::kFloat, .sizes = {2, 3}, .strides = {3, 1}};

const std::string& library() {
  static const std::string name = [] {
    const std::filesystem::path path = REPRISE_TEST_KERNELS;
    add_kernel_folder(path.parent_path());
    return path.filename().string();
  }();
  return name;
}

std::vector<std::int64_t> arguments(std::int64_t workspace_offset = 0) {
  const std::vector<LaunchArgument> list{{Kind::kRead, 0},
                                         {Kind::kChanged, 0},
                                         {Kind::kMade, 0},
                                         {Kind::kWorkspace, workspace_offset},
                                         {Kind::kNumber, kCount}};
  return to_numbers(list);
}

std::vector<std::int64_t> made(std::int64_t bytes) {
  const std::vector<MadeMemory> list{{.geometry = kMatrix, .bytes = bytes}};
  return to_numbers(list);
}

std::vector<c10::IValue> stack_of(const std::string& file, const std::string& function, const at::Tensor& read,
                                  const at::Tensor& changed, std::int64_t made_bytes = 24) {
  return {file,
          function,
          at::Device(at::kCPU),
          std::vector<std::int64_t>{},
          arguments(),
          c10::List<at::Tensor>({read}),
          c10::List<at::Tensor>({changed}),
          made(made_bytes),
          std::int64_t{64},
          false,
          std::vector<std::int64_t>{}};
}

c10::OperatorHandle launch_operator() { return find_operator(kLaunch).value(); }

TEST(Launch, RunsAKernelOnWhatItReadsChangesAndMakes) {
  const at::Tensor read = at::full({2, 3}, 3.0F);
  const at::Tensor changed = at::ones({2, 3});
  auto stack = stack_of(library(), "add_to_sum", read, changed, /*made_bytes=*/40);
  launch_operator().callBoxed(stack);
  const at::Tensor result = stack.front().toTensorList().get(0);
  EXPECT_TRUE(result.equal(at::full({2, 3}, 6.0F)));
  EXPECT_EQ(result.storage().nbytes(), 40);
  EXPECT_TRUE(changed.equal(at::full({2, 3}, 4.0F)));  // The workspace starts as zeros.
}

TEST(Launch, TakesItsWorkspaceOnlyWhileItRuns) {
  const at::Tensor read = at::ones({2, 3});
  const at::Tensor changed = at::ones({2, 3});
  auto stack = stack_of(library(), "add_to_sum", read, changed);
  const std::int64_t before = read_meter(at::kCPU).allocated_bytes;
  reset_meter_peak(at::kCPU);
  launch_operator().callBoxed(stack);
  EXPECT_EQ(read_meter(at::kCPU).peak_bytes - before, 24 + 64);
  EXPECT_EQ(read_meter(at::kCPU).allocated_bytes - before, 24);
}

TEST(Launch, SaysWhichFileOrFunctionIsMissing) {
  const at::Tensor x = at::ones({2, 3});
  auto no_file = stack_of("absent.so", "add_to_sum", x, x);
  EXPECT_THAT(input_error([&] { launch_operator().callBoxed(no_file); }),
              HasSubstr("the kernel file absent.so is neither beside the program nor in "));
  auto no_function = stack_of(library(), "absent", x, x);
  EXPECT_THAT(input_error([&] { launch_operator().callBoxed(no_function); }), HasSubstr("has no kernel 'absent'"));
}

TEST(Launch, IsACallThatMakesAVersionOfWhatItChanges) {
  ProgramBuilder builder("net", at::kCPU);
  const ValueId read = builder.resident(24, at::kCPU);
  const ValueId changed = builder.resident(24, at::kCPU);
  const auto call_with = [&](bool atomic) {
    Call call{launch_operator(), {}};
    const std::vector<c10::IValue> stack = stack_of(library(), "add_to_sum", {}, {});
    for (const c10::IValue& constant : stack) call.arguments.push_back({.constant = constant});
    call.arguments[5] = {.kind = Argument::Kind::kTensorList, .tensors = {TensorUse{read, kMatrix}}};
    call.arguments[6] = {.kind = Argument::Kind::kTensorList, .tensors = {TensorUse{changed, kMatrix}}};
    call.arguments[9].constant = atomic;
    return call;
  };
  const Call call = call_with(false);
  EXPECT_TRUE(Kernel(call).repeats(at::kCPU));
  EXPECT_FALSE(Kernel(call_with(true)).repeats(at::kCPU));
  EXPECT_TRUE(samples_of(call).empty());
  Call with_sample = call;
  with_sample.arguments[10].constant = std::vector<std::int64_t>{4};
  EXPECT_THAT(samples_of(with_sample), ::testing::ElementsAre(::testing::Pair(read, 4)));
  const ValueId result = builder.made(24, at::kCPU);
  builder.call({.name = "sum",
                .scope = "",
                .call = call,
                .facts = facts_of(call),
                .repeats = true,
                .results = {TensorUse{result, kMatrix}}});
  const ProgramOp& op = builder.program().ops.back();
  EXPECT_TRUE(op.mutates);
  ASSERT_EQ(op.also_makes.size(), 1);
  EXPECT_EQ(builder.program().values[index(op.also_makes.front())].overwrites, changed);
}

}  // namespace
}  // namespace reprise
