// What the builder makes of calls, op by op.
#include "runtime/program/program_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace reprise {
namespace {

using testing::ElementsAre;

constexpr std::int64_t kBytes = 4 * 2 * 3 * 8 * 8;  // of a picture

Geometry floats(std::vector<std::int64_t> sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  return {.sizes = std::move(sizes), .strides = std::move(strides)};
}

// A front end whose memory has names.
class Net {
 public:
  explicit Net(at::Device device = at::kCPU) : builder(device.is_cpu() ? "net" : "other", device) {}

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
    const std::size_t dot = op.find('.');
    const std::string overload = dot == std::string::npos ? "" : op.substr(dot + 1);
    Call made{c10::Dispatcher::singleton().findSchemaOrThrow(("aten::" + op.substr(0, dot)).c_str(), overload.c_str()),
              std::move(arguments)};
    for (std::size_t i = made.arguments.size(); i < made.op.schema().arguments().size(); ++i) {
      made.arguments.push_back({.constant = made.op.schema().arguments()[i].default_value().value()});
    }
    const CallFacts facts = facts_of(made, builder.program().device);
    return builder.call({name, "layer", std::move(made), facts, std::move(results)});
  }

  // "sum once: z -> loss"; a version has a stroke more than what it overwrites, memory without a name a number.
  [[nodiscard]] std::vector<std::string> lines(const Program& program) {
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

  ProgramBuilder builder;

 private:
  TensorUse named(const std::string& name, ValueId value, const Geometry& geometry) {
    names_.emplace(value, name);
    return {value, geometry};
  }
  std::string label(const Program& program, ValueId value) {
    const ValueId old = program.values[index(value)].overwrites;
    const bool has_name = names_.contains(value);
    if (!has_name && old != kNoValue) return label(program, old) + "'";
    return has_name ? names_.at(value) : "#" + std::to_string(index(value));
  }

  std::map<ValueId, std::string> names_;
};

Argument tensor(const TensorUse& use) { return {.kind = Argument::Kind::kTensor, .tensors = {use}}; }
Argument constant(c10::IValue value) { return {.constant = std::move(value)}; }
Argument ints(std::vector<std::int64_t> list) { return constant(c10::IValue(std::move(list))); }

const ProgramOp& op_named(const Program& program, const std::string& name) {
  return *std::ranges::find(program.ops, name, &ProgramOp::name);
}

// dropout(relu_(batch_norm(conv(x)))) + x, its loss a sum, and what autograd calls; two parameters get one gradient.
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
    const std::vector<Argument> shape{ints({0}), ints({1, 1}), ints({1, 1}), ints({1, 1}), constant(false), ints({0, 0}),
                                      constant(1), constant(c10::List<bool>({true, true, false}))};
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
  const std::string state = "#" + std::to_string(index(op_named(program, "dropout").generator_state));
  const std::string token = "#" + std::to_string(index(makes(op_named(program, "dropout")).back()));
  const std::string kept = "#" + std::to_string(index(caller_value(program)));
  EXPECT_THAT(block.lines(program),
              ElementsAre("conv: x w -> conv",                                        //
                          "norm: conv scale shift -> y saved_mean saved_invstd",      //
                          "norm_statistics once: mean var saved_mean -> mean' var'",  //
                          "relu_: y -> y'",                                           //
                          "dropout_state once: -> " + state,                          //
                          "dropout: y' " + state + " -> dropped mask " + token,       //
                          "add: dropped x -> z",                                      //
                          "sum: z -> loss",                                           //
                          "caller once: loss -> seed " + kept,                        //
                          "dropout_backward: seed mask -> g_relu",                    //
                          "relu_backward: g_relu y' -> g_norm",                       //
                          "norm_backward: g_norm conv scale saved_mean saved_invstd -> g_conv g_scale g_shift",
                          "conv_backward: g_conv x w -> g_x g_w",  //
                          "add_1: g_x seed -> g_sum",              //
                          "again_copy: g_shift -> " + std::to_string(0).erase() + "#" +
                              std::to_string(index(program.gradients[4]->value)),
                          "hand_over once: g_scale g_shift g_w g_sum #" +
                              std::to_string(index(program.gradients[4]->value)) + " ->"));
  EXPECT_NO_THROW(static_cast<void>(make_graph(program)));
}

}  // namespace
}  // namespace reprise
