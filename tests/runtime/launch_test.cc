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
#include "runtime/program/passes/in_place.h"
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
          std::vector<std::int64_t>{},
          std::vector<std::int64_t>{0, 0},
          false};
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

TEST(Launch, InPlaceItsResultLiesOverWhatItReads) {
  const at::Tensor read = at::full({2, 3}, 3.0F);
  const at::Tensor changed = at::ones({2, 3});
  auto stack = stack_of(library(), "add_to_sum", read, changed);
  stack.back() = true;
  const std::int64_t before = read_meter(at::kCPU).allocated_bytes;
  launch_operator().callBoxed(stack);
  const at::Tensor result = stack.front().toTensorList().get(0);
  EXPECT_EQ(result.data_ptr(), read.data_ptr());
  EXPECT_TRUE(read.equal(at::full({2, 3}, 6.0F)));
  EXPECT_EQ(read_meter(at::kCPU).allocated_bytes, before);
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

// A launch that reads `reads`, of which the result may lie over any, in a program whose values have 24 bytes.
struct InPlaceLaunch {
  ProgramBuilder builder{"net", at::kCPU};
  ValueId resident = builder.resident(24, at::kCPU);

  ValueId launch(const std::vector<ValueId>& reads, std::int64_t bytes = 24) {
    Call call{launch_operator(), {}};
    const std::vector<c10::IValue> stack = stack_of(library(), "add_to_sum", {}, {});
    for (const c10::IValue& constant : stack) call.arguments.push_back({.constant = constant});
    call.arguments[5] = {.kind = Argument::Kind::kTensorList};
    call.arguments[6] = {.kind = Argument::Kind::kTensorList};
    std::vector<std::int64_t> over;
    for (const ValueId value : reads) {
      over.insert(over.end(), {0, static_cast<std::int64_t>(call.arguments[5].tensors.size())});
      call.arguments[5].tensors.emplace_back(TensorUse{value, kMatrix});
    }
    call.arguments[11].constant = over;
    const ValueId made = builder.made(bytes, at::kCPU);
    builder.call({.name = "launch",
                  .scope = "",
                  .call = call,
                  .facts = facts_of(call),
                  .repeats = true,
                  .results = {TensorUse{made, kMatrix}}});
    return made;
  }
  [[nodiscard]] Program program() const {
    Program program = builder.program();
    write_in_place(program);
    return program;
  }
};

TEST(Launch, MayLieOverTheOperandWithTheFewestReadersToCome) {
  InPlaceLaunch net;
  const ValueId first = net.launch({net.resident});
  const ValueId second = net.launch({net.resident});
  const ValueId sum = net.launch({net.resident, first, second});
  const ValueId last = net.launch({first, sum});
  const Program program = net.program();
  EXPECT_EQ(program.values[index(first)].overwrites, kNoValue);  // What the step does not own stays.
  EXPECT_EQ(program.values[index(sum)].overwrites, second);
  EXPECT_EQ(program.values[index(last)].overwrites, first);
  const Call& call = program.ops[2].in_place_call.value();
  EXPECT_EQ(call.argument("over")->constant.toIntVector(), (std::vector<std::int64_t>{0, 2}));
  EXPECT_TRUE(call.argument("in_place")->constant.toBool());
  EXPECT_FALSE(program.ops[2].call->argument("in_place")->constant.toBool());
}

TEST(Launch, LiesOverNothingThatIsLargerOrSeenTwice) {
  InPlaceLaunch net;
  const ValueId large = net.launch({net.resident}, /*bytes=*/40);
  const ValueId twice = net.launch({large});
  const ValueId result = net.launch({twice, twice});
  const Program program = net.program();
  EXPECT_EQ(program.values[index(twice)].overwrites, kNoValue);
  EXPECT_EQ(program.values[index(result)].overwrites, kNoValue);
  EXPECT_FALSE(program.ops[1].in_place_call || program.ops[2].in_place_call);
}

}  // namespace
}  // namespace reprise
