// The chain that is cut, against a slow search for it, in random programs.
#include "runtime/program/slices/chain.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/chain_reference.h"
#include "runtime/program/slices/cut.h"
#include "support/random.h"
#include "support/small_tests.h"

namespace reprise::test {
namespace {

// Calls over matrices of twelve rows and over sums of such rows. Which numbers they would make does not matter.
class RandomCalls {
 public:
  explicit RandomCalls(std::uint64_t seed) : random_(seed) {
    for (int i = 0; i < 3; ++i) made_.push_back(add_value({kRows, width()}));
    const int count = random_.between(5, 60);
    for (int i = 0; i < count; ++i) {
      phase_ = i < count / 2 ? Phase::kForward : Phase::kBackward;
      add_call();
    }
    for (ProgramValue& value : program_.values) value.held = random_.chance(4);
    program_.forward_outputs = {any()};
    program_.gradients = {any(), any()};
  }

  [[nodiscard]] const Program& program() const { return program_; }
  [[nodiscard]] std::set<OpId> some_ops() {
    std::set<OpId> found;
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      if (random_.chance(10)) found.insert(op_id(i));
    }
    return found;
  }

 private:
  static constexpr std::int64_t kRows = 12;
  static constexpr std::int64_t kPart = 3;  // of which there are four

  std::int64_t width() { return random_.chance(20) ? 4 : random_.between(2, 9) * 40; }
  const TensorUse& any() { return made_[static_cast<std::size_t>(random_.below(std::ssize(made_)))]; }
  // Most of the time one of the latest, so that chains are long.
  const TensorUse& recent() {
    const auto latest = std::min<std::int64_t>(4, std::ssize(made_));
    return random_.chance(80) ? made_[made_.size() - 1 - static_cast<std::size_t>(random_.below(latest))] : any();
  }

  TensorUse add_value(std::vector<std::int64_t> sizes) {
    Geometry geometry{.sizes = sizes, .strides = std::vector<std::int64_t>(sizes.size(), 1)};
    for (std::size_t i = sizes.size() - 1; i > 0; --i) geometry.strides[i - 1] = geometry.strides[i] * sizes[i];
    program_.values.push_back({.bytes = extent_bytes(geometry)});
    return {value_id(program_.values.size() - 1), geometry};
  }

  // The same numbers as a tensor of three dimensions, or as the transpose.
  TensorUse seen(TensorUse use) {
    const std::int64_t columns = use.geometry.sizes.back();
    if (use.geometry.sizes.front() != kRows || random_.chance(70)) return use;
    if (random_.chance(30)) return {use.value, transposed(use.geometry)};
    use.geometry.sizes = {kRows / kPart, kPart, columns};
    use.geometry.strides = {kPart * columns, columns, 1};
    return use;
  }

  static Argument tensor(TensorUse use) { return {.kind = Argument::Kind::kTensor, .tensors = {std::move(use)}}; }
  static Argument number(std::int64_t of) { return {.constant = of}; }

  void add_call() {
    const TensorUse first = seen(recent());
    const TensorUse second = seen(recent());
    const std::vector<std::int64_t>& sizes = first.geometry.sizes;
    switch (random_.below(10)) {
      case 0:
        return add("aten::mm", {tensor(first), tensor(second)}, {sizes.front(), width()});
      case 1:
        return add("aten::mm", {tensor({first.value, transposed(made_as(first))}), tensor(second)},
                   {made_as(first).sizes.back(), second.geometry.sizes.back()});
      case 2:
        return add("aten::_softmax", {tensor(first), number(-1), {.constant = false}}, sizes);
      case 3:
        return add("aten::cumsum", {tensor(first), number(0), {.constant = c10::IValue()}}, sizes);
      case 4:
      case 5:
        return add("aten::tanh", {tensor(first)}, sizes);
      default:
        return add("aten::add.Tensor", {tensor(first), tensor(second), {.constant = at::Scalar(1)}}, sizes);
    }
  }
  const Geometry& made_as(const TensorUse& use) const { return made_[index(use.value)].geometry; }

  void add(const char* name, std::vector<Argument> arguments, std::vector<std::int64_t> sizes) {
    ProgramOp op;
    op.name = "op " + std::to_string(program_.ops.size());
    op.phase = phase_;
    op.once = random_.chance(3);
    op.call = Call{find_operator(name).value(), std::move(arguments)};
    op.outputs = {made_.emplace_back(add_value(std::move(sizes)))};
    program_.ops.push_back(std::move(op));
  }

  Random random_;
  Program program_;
  Phase phase_ = Phase::kForward;
  std::vector<TensorUse> made_;  // by value
};

TEST(Chain, IsThatOfASlowSearch) {
  int chains = 0, with_sums = 0, calls = 0;
  for (std::uint64_t seed = 0; seed < fewer(3000U); ++seed) {
    RandomCalls calls_of(seed);
    const std::set<OpId> never = seed % 3 == 0 ? calls_of.some_ops() : std::set<OpId>();
    for (const Sums sums : {Sums::kWhole, Sums::kInSlices}) {
      const auto found = find_chain(calls_of.program(), sums, never);
      EXPECT_EQ(found, slowly_found_chain(calls_of.program(), sums, never)) << "seed " << seed;
      if (!found) continue;
      ++chains;
      with_sums += found->sums.empty() ? 0 : 1;
      calls += static_cast<int>(found->ops.size());
    }
  }
  EXPECT_GT(chains, fewer(4000));  // otherwise the trials say nothing
  EXPECT_GT(with_sums, fewer(100));
  EXPECT_GT(calls, 3 * chains);
}

}  // namespace
}  // namespace reprise::test
