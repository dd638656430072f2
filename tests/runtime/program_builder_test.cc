// Tests which ops the builder makes from calls.
#include "runtime/program/program_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/program/program_queries.h"

namespace reprise {
namespace {

using testing::ElementsAre;

Geometry floats(std::vector<std::int64_t> sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  return {.sizes = std::move(sizes), .strides = std::move(strides)};
}

// Calls the builder, and gives names to the values.
class Net {
 public:
  TensorUse resident(const std::string& name, const Geometry& geometry) {
    return named(name, builder.resident(extent_bytes(geometry), at::kCPU), geometry);
  }
  TensorUse made(const std::string& name, const Geometry& geometry, at::Device device = at::kCPU) {
    return named(name, builder.made(extent_bytes(geometry), device), geometry);
  }
  TensorUse seed(const std::string& name, const Geometry& geometry) {
    return named(name, builder.seed(extent_bytes(geometry), at::kCPU), geometry);
  }
  OpId call(const std::string& name, const std::string& op, std::vector<Argument> arguments, Uses results) {
    Call made{find_operator("aten::" + op).value(), std::move(arguments)};
    for (std::size_t i = made.arguments.size(); i < made.op.schema().arguments().size(); ++i) {
      made.arguments.push_back({.constant = made.op.schema().arguments()[i].default_value().value()});
    }
    const CallFacts facts = facts_of(made);
    return builder.call({name, "layer", std::move(made), facts, /*repeats=*/true, std::move(results)});
  }

  // A line for each op, such as "sum once: z -> loss". A new version of a value has one more ' than the old one.
  [[nodiscard]] std::vector<std::string> lines(const Program& program) const {
    std::vector<std::string> found;
    for (const ProgramOp& op : program.ops) {
      std::string line = op.name + (op.once ? " once:" : ":");
      for (const ValueId value : reads(op)) line += ' ' + label(program, value);
      line += " ->";
      for (const ValueId value : makes(op)) line += ' ' + label(program, value);
      found.push_back(line);
    }
    return found;
  }

  ProgramBuilder builder{"net", at::kCPU};

 private:
  TensorUse named(const std::string& name, ValueId value, const Geometry& geometry) {
    names_.emplace(value, name);
    return {value, geometry};
  }
  // The name of a value. A value that the builder has added is named after the op that makes it.
  [[nodiscard]] std::string label(const Program& program, ValueId value) const {
    if (names_.contains(value)) return names_.at(value);
    const ValueId old = program.values[index(value)].overwrites;
    if (old != kNoValue) return label(program, old) + "'";
    const auto makes_it = [&](const ProgramOp& op) { return std::ranges::count(makes(op), value) != 0; };
    const ProgramOp& op = *std::ranges::find_if(program.ops, makes_it);
    if (op.kind == ProgramOp::Kind::kGeneratorState) return "state";
    if (op.kind == ProgramOp::Kind::kCaller) return "kept";
    return op.outputs.front() && op.outputs.front()->value == value ? "copy" : "token";
  }

  std::map<ValueId, std::string> names_;
};

Argument tensor(const TensorUse& use) { return {.kind = Argument::Kind::kTensor, .tensors = {use}}; }
Argument constant(c10::IValue value) { return {.constant = std::move(value)}; }
Argument ints(std::vector<std::int64_t> list) { return constant(c10::IValue(std::move(list))); }

const ProgramOp& op_named(const Program& program, const std::string& name) {
  return *std::ranges::find(program.ops, name, &ProgramOp::name);
}

// dropout(relu_(batch_norm(conv(x)))) + x with a sum as its loss, and the calls of autograd. Two parameters get the
// same gradient.
struct Block : Net {
  const Geometry picture = floats({2, 3, 8, 8});
  const Geometry channels = floats({3});
  const Geometry number = floats({});
  const TensorUse x = resident("x", picture);
  const TensorUse w = resident("w", floats({3, 3, 3, 3}));
  const TensorUse scale = resident("scale", channels);
  const TensorUse shift = resident("shift", channels);
  const TensorUse mean = resident("mean", channels);
  const TensorUse var = resident("var", channels);

  Program finished() {
    for (const TensorUse& use : {x, w, scale, shift, mean, var}) builder.input(use);
    forward();
    const std::vector<Argument> shape{
        ints({0}),       ints({1, 1}), ints({1, 1}), ints({1, 1}),
        constant(false), ints({0, 0}), constant(1),  constant(c10::List<bool>({true, true, false}))};
    const TensorUse expanded{seed_.value, {.sizes = picture.sizes, .strides = {0, 0, 0, 0}}};
    const TensorUse dropped = made("g_relu", picture);
    call("dropout_backward", "native_dropout_backward", {tensor(expanded), tensor(mask_), constant(2.0)}, {dropped});
    const TensorUse normed = made("g_norm", picture);
    call("relu_backward", "threshold_backward", {tensor(dropped), tensor(y_), constant(0)}, {normed});
    const Uses norm{made("g_conv", picture), made("g_scale", channels), made("g_shift", channels)};
    call("norm_backward", "native_batch_norm_backward",
         {tensor(normed), tensor(conv_), tensor(scale), tensor(mean), tensor(var), tensor(saved_mean_),
          tensor(saved_invstd_), constant(true), constant(1e-5), constant(c10::List<bool>({true, true, true}))},
         norm);
    std::vector<Argument> arguments{tensor(*norm[0]), tensor(x), tensor(w)};
    arguments.insert(arguments.end(), shape.begin(), shape.end());
    const Uses conv{made("g_x", picture), made("g_w", w.geometry), std::nullopt};
    call("conv_backward", "convolution_backward", arguments, conv);
    const TensorUse sum = made("g_sum", picture);
    call("add_1", "add.Tensor", {tensor(*conv[0]), tensor(expanded)}, {sum});
    return builder.finish({{{.use = sum}},
                           {{.use = *conv[1]}},
                           {{.use = *norm[1], .name = "scale"}},
                           {{.use = *norm[2], .name = "shift", .scope = "norm"}},
                           {{.use = *norm[2], .name = "again", .scope = "norm"}},
                           std::nullopt});
  }

 private:
  void forward() {
    conv_ = made("conv", picture);
    call("conv", "convolution",
         {tensor(x), tensor(w), constant({}), ints({1, 1}), ints({1, 1}), ints({1, 1}), constant(false), ints({0, 0}),
          constant(1)},
         {conv_});
    y_ = made("y", picture);
    saved_mean_ = made("saved_mean", channels);
    saved_invstd_ = made("saved_invstd", channels);
    call("norm", "native_batch_norm",
         {tensor(conv_), tensor(scale), tensor(shift), tensor(mean), tensor(var), constant(true), constant(0.1),
          constant(1e-5)},
         {y_, saved_mean_, saved_invstd_});
    call("relu_", "relu_", {tensor(y_)}, {std::nullopt});
    const TensorUse dropped = made("dropped", picture);
    mask_ = made("mask", {.dtype = at::kBool, .sizes = picture.sizes, .strides = picture.strides});
    call("dropout", "native_dropout", {tensor(y_), constant(0.5), constant(true)}, {dropped, mask_});
    const TensorUse z = made("z", picture);
    call("add", "add.Tensor", {tensor(dropped), tensor(x)}, {z});
    const TensorUse loss = made("loss", number);
    call("sum", "sum", {tensor(z)}, {loss});
    seed_ = seed("seed", number);
    builder.end_forward({loss}, {seed_});
  }

  TensorUse conv_, y_, saved_mean_, saved_invstd_, mask_, seed_;
};

TEST(ProgramBuilder, MakesAResidualBlockOpByOp) {
  Block block;
  const Program program = block.finished();
  EXPECT_THAT(block.lines(program),
              ElementsAre("conv: x w -> conv",                                        //
                          "norm: conv scale shift -> y saved_mean saved_invstd",      //
                          "norm_statistics once: mean var saved_mean -> mean' var'",  //
                          "relu_: y -> y'",                                           //
                          "dropout_state once: -> state",                             //
                          "dropout: y' state -> dropped mask token",                  //
                          "add: dropped x -> z",                                      //
                          "sum: z -> loss",                                           //
                          "caller once: loss -> seed kept",                           //
                          "dropout_backward: seed mask -> g_relu",                    //
                          "relu_backward: g_relu y' -> g_norm",                       //
                          "norm_backward: g_norm conv scale saved_mean saved_invstd -> g_conv g_scale g_shift",
                          "conv_backward: g_conv x w -> g_x g_w",  //
                          "add_1: g_x seed -> g_sum",              //
                          "again_copy: g_shift -> copy",           //
                          "hand_over once: g_scale g_shift g_w g_sum copy ->"));
  EXPECT_NO_THROW(static_cast<void>(make_graph(program)));
  EXPECT_EQ(program.ops[1].first_call->arguments[3].tensors.front()->value, block.mean.value);
  EXPECT_EQ(program.new_contents.size(), 2);
  EXPECT_EQ(program.gradients.size(), 6);
  EXPECT_FALSE(program.gradients[5]);
  EXPECT_EQ(op_named(program, "again_copy").scope, "norm");
}

// The gradient of the ReLU's input may overwrite that of its output, and z may overwrite the output of dropout, but not
// x, which belongs to the caller.
TEST(ProgramBuilder, LetsPassesWriteOverWhatDies) {
  Block block;
  const Program program = block.finished();
  const auto overwritten = [&](const char* name) {
    return program.values[index(op_named(program, name).outputs.front()->value)].overwrites;
  };
  EXPECT_EQ(overwritten("add"), op_named(program, "dropout").outputs.front()->value);
  EXPECT_EQ(overwritten("relu_backward"), op_named(program, "dropout_backward").outputs.front()->value);
  EXPECT_EQ(overwritten("dropout_backward"), kNoValue);  // The seed is expanded, so it cannot be overwritten.
  EXPECT_EQ(op_named(program, "add").in_place_call->op.operator_name().overload_name, "out");
}

TEST(ProgramBuilder, CountsWhatIsOnItsDevice) {
  Net net;
  const TensorUse here = net.made("here", floats({16}));
  const TensorUse there = net.made("there", floats({16}), at::kCUDA);
  EXPECT_EQ(net.builder.program().values[index(here.value)].bytes, 64);
  EXPECT_EQ(net.builder.program().values[index(there.value)].bytes, 0);
}

// A call that draws random numbers on another device runs once, because its state cannot be saved here.
TEST(ProgramBuilder, OrdersRandomCallsAndDrawsOnceElsewhere) {
  Net net;
  const TensorUse x = net.resident("x", floats({16}));
  for (const char* name : {"first", "second"}) {
    net.call(name, "bernoulli.p", {tensor(x), constant(0.5)}, {net.made(name, floats({16}))});
  }
  net.call("there", "bernoulli.p", {tensor(x), constant(0.5)}, {net.made("there", floats({16}), at::kCUDA)});
  EXPECT_THAT(
      net.lines(net.builder.program()),
      ElementsAre("first_state once: -> state", "first: x state -> first token", "second_state once: token -> state",
                  "second: x state -> second token", "there once: x -> there"));
}

TEST(ProgramBuilder, ReadsTheVersionThatIsThere) {
  Net net;
  const TensorUse buffer = net.resident("buffer", floats({16}));
  const TensorUse before = net.made("before", floats({16}));
  net.call("before", "exp", {tensor(buffer)}, {before});
  net.call("add_", "add_.Tensor", {tensor(buffer), tensor(before)}, {std::nullopt});
  net.call("mul_", "mul_.Tensor", {tensor(buffer), tensor(buffer)}, {std::nullopt});
  const TensorUse after = net.made("after", floats({16}));
  net.call("after", "exp", {tensor(buffer)}, {after});
  net.builder.end_forward({after});
  const Program program = net.builder.finish({});
  EXPECT_THAT(net.lines(program), ElementsAre("before once: buffer -> before", "add_ once: buffer before -> buffer'",
                                              "mul_ once: buffer' -> buffer''", "after: buffer'' -> after",
                                              "caller once: after -> kept", "hand_over once: ->"));
  EXPECT_THAT(program.new_contents, ElementsAre(program.ops[2].also_makes.front()));
}

TEST(ProgramBuilder, MakesOneVersionOfStatisticsThatLieTogether) {
  Net net;
  const TensorUse x = net.resident("x", floats({2, 3, 8, 8}));
  const TensorUse both = net.resident("both", floats({6}));
  TensorUse var{both.value, floats({3})};
  var.geometry.offset = 3;
  net.call("norm", "native_batch_norm",
           {tensor(x), constant({}), constant({}), tensor({both.value, floats({3})}), tensor(var), constant(true),
            constant(0.1), constant(1e-5)},
           {net.made("y", floats({2, 3, 8, 8})), net.made("mean", floats({3})), net.made("invstd", floats({3}))});
  EXPECT_THAT(net.lines(net.builder.program()),
              ElementsAre("norm: x -> y mean invstd", "norm_statistics once: both mean -> both'"));
}

TEST(ProgramBuilder, GivesNumbersAsTensors) {
  Net net;
  const TensorUse x = net.resident("x", floats({16}));
  net.call("add", "add.Scalar", {tensor(x), constant(2.0)}, {net.made("y", floats({16}))});
  const Call& call = *net.builder.program().ops.front().call;
  EXPECT_EQ(call.op.operator_name().overload_name, "Tensor");
  EXPECT_EQ(call.arguments[1].constant.toTensor().item<double>(), 2.0);
  const std::vector<at::Tensor> own = own_tensors(net.builder.program());
  ASSERT_EQ(own.size(), 1U);
  EXPECT_EQ(own.front().nbytes(), 8U);
}

// The caller may leave a gradient out, so the builder notes where it is added to another tensor. It does not do so if
// the addition has a factor or another shape.
TEST(ProgramBuilder, NotesWhereASeedIsAdded) {
  Net net;
  const TensorUse x = net.resident("x", floats({16}));
  const TensorUse y = net.made("y", floats({16}));
  net.call("y", "exp", {tensor(x)}, {y});
  const TensorUse seed = net.seed("seed", floats({16}));
  net.builder.end_forward({y}, {seed});
  const auto add = [&](const char* name, const TensorUse& of, std::int64_t times) {
    net.call(name, "add.Tensor", {tensor(x), tensor(of), constant(times)}, {net.made(name, floats({16}))});
    return net.builder.program().ops.back();
  };
  const ProgramOp sum = add("sum", seed, 1);
  EXPECT_EQ(sum.added_seed, seed.value);
  EXPECT_EQ(sum.added_to, x.value);
  EXPECT_EQ(add("twice", seed, 2).added_seed, kNoValue);
  EXPECT_EQ(add("first", {seed.value, floats({1})}, 1).added_seed, kNoValue);
  EXPECT_EQ(add("other", y, 1).added_seed, kNoValue);
}

TEST(ProgramBuilder, CopiesGradientsThatOthersOwnAndCountsTheCopiesOfAutograd) {
  Net net;
  const TensorUse x = net.resident("x", floats({4, 8}));
  const TensorUse y = net.made("y", floats({4, 8}));
  net.call("y", "exp", {tensor(x)}, {y});
  net.builder.end_forward({y});
  const TensorUse z = net.made("z", floats({4, 8}));
  net.call("z", "exp", {tensor(x)}, {z});
  const Geometry transposed{.sizes = {4, 8}, .strides = {1, 4}};
  const Program program = net.builder.finish({{{.use = x, .name = "input"}},
                                              {{.use = y, .name = "output"}},
                                              {{.use = z, .variable = floats({4, 8}), .name = "own"}},
                                              {{.use = z, .variable = transposed, .name = "laid_out"}}});
  EXPECT_THAT(net.lines(program),
              ElementsAre("y: x -> y", "caller once: y -> kept", "z: x -> z", "input_copy: x -> copy",
                          "output_copy: y -> copy", "hand_over once: z copy copy ->"));
  EXPECT_EQ(hand_over_bytes(program), 4 * 8 * 4);
  EXPECT_EQ(resident_bytes(program), 4 * 8 * 4);
}

}  // namespace
}  // namespace reprise
