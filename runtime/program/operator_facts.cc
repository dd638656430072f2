#include "runtime/program/operator_facts.h"

#include <ATen/Context.h>
#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace reprise {
namespace {

using Names = std::initializer_list<std::string_view>;

bool is_one_of(std::string_view name, Names names) { return std::ranges::find(names, name) != names.end(); }

std::optional<std::size_t> position(const c10::FunctionSchema& schema, std::string_view argument) {
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    if (schema.arguments()[i].name() == argument) return i;
  }
  return std::nullopt;
}

class Arguments {
 public:
  Arguments(const c10::FunctionSchema& schema, const torch::jit::Stack& stack)
      : schema_(schema), begin_(stack.end() - static_cast<std::ptrdiff_t>(schema.arguments().size())) {}

  [[nodiscard]] const c10::IValue& operator[](std::size_t i) const {
    return *(begin_ + static_cast<std::ptrdiff_t>(i));
  }
  [[nodiscard]] const c10::IValue* find(std::string_view name) const {
    const auto found = position(schema_, name);
    return found ? &(*this)[*found] : nullptr;
  }

 private:
  const c10::FunctionSchema& schema_;
  torch::jit::Stack::const_iterator begin_;
};

// Several threads add at one place, also on the CPU.
bool puts_in_any_order(std::string_view name, const Arguments& arguments) {
  if (!accumulates_in_any_order(name)) return false;
  const c10::IValue* accumulate = arguments.find("accumulate");
  return accumulate == nullptr || accumulate->toBool();
}

// Operators that write to what their forward left for them, or draw from a state of their own.
bool changes_its_reserve(std::string_view name, const Arguments& arguments) {
  if (is_one_of(name, {"mkldnn_rnn_layer_backward", "_cudnn_rnn_backward", "miopen_rnn_backward"})) return true;
  if (!is_one_of(name, {"_cudnn_rnn", "miopen_rnn"})) return false;
  const c10::IValue* dropout = arguments.find("dropout");
  const c10::IValue* train = arguments.find("train");
  return dropout != nullptr && dropout->toDouble() > 0 && train != nullptr && train->toBool();
}

// Attention is tagged random; it draws nothing at dropout 0.
bool is_random(const c10::OperatorHandle& op, std::string_view name, const Arguments& arguments) {
  if (!op.hasTag(at::Tag::nondeterministic_seeded)) return false;
  if (name.find("attention") == std::string_view::npos) return true;
  for (const std::string_view argument : {"dropout_p", "p"}) {
    const c10::IValue* p = arguments.find(argument);
    if (p != nullptr && p->isDouble() && p->toDouble() == 0) return false;
  }
  return true;
}

bool indexes_by_mask(const Arguments& arguments) {
  const c10::IValue* indices = arguments.find("indices");
  if (indices == nullptr || !indices->isOptionalTensorList()) return true;
  for (const std::optional<at::Tensor>& index : indices->toOptionalTensorVector()) {
    if (index && index->defined() && (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte))
      return true;
  }
  return false;
}

// A tensor without memory becomes a view of some: cuDNN's recurrent layers see all of their weights as one so.
bool gives_first_memory(std::string_view name, const Arguments& arguments) {
  const c10::IValue* self = arguments.find("self");
  return name == "set_" && self != nullptr && self->isTensor() && self->toTensor().storage().nbytes() == 0;
}

std::string refusal_of(const c10::OperatorHandle& op, std::string_view name, const Arguments& arguments) {
  if (name == "_local_scalar_dense") {
    return "the model reads a number out of a tensor (.item<>()): keep it a tensor, or compute it outside of the step";
  }
  if (is_one_of(name, {"resize_", "resize_as_", "set_", "_resize_output_"}) && !gives_first_memory(name, arguments)) {
    return "it gives a tensor other memory in place: make a new tensor instead";
  }
  const c10::IValue* generator = arguments.find("generator");
  if (generator != nullptr && generator->isGenerator() && generator->toGenerator().defined()) {
    return "it draws from a generator of its own, whose position is not known here: use the default generator; a "
           "recurrent layer with dropout does so on CUDA: give it none, and put a Dropout between layers";
  }
  if (name == "equal") return "";
  if (is_one_of(name, {"batch_norm_update_stats", "batch_norm_gather_stats", "batch_norm_gather_stats_with_counts"})) {
    return "it changes running statistics without saying so: use batch_norm";
  }
  if (name == "index")
    return indexes_by_mask(arguments) ? "a mask picks as many elements as it likes: multiply by it, or use "
                                        "torch::where"
                                      : "";
  if (op.hasTag(at::Tag::data_dependent_output) || op.hasTag(at::Tag::dynamic_output_shape)) {
    return "what it gives depends on the numbers in its tensors: compute it outside of the step";
  }
  return "";
}

bool trains(const Arguments& arguments) {
  for (const std::string_view name : {"training", "train"}) {
    if (const c10::IValue* value = arguments.find(name)) return value->toBool();
  }
  return false;
}

std::vector<std::size_t> updated_statistics(const c10::FunctionSchema& schema, std::string_view name,
                                            const Arguments& arguments) {
  std::vector<std::size_t> found;
  if (!is_one_of(name, {"native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"}) || !trains(arguments))
    return found;
  for (const std::string_view argument : {"running_mean", "running_var"}) {
    const auto i = position(schema, argument);
    if (i && arguments[*i].isTensor() && arguments[*i].toTensor().defined()) found.push_back(*i);
  }
  return found;
}

}  // namespace

bool adds_in_any_order(std::string_view name) {
  static constexpr std::array kPrefixes{"_adaptive_avg_pool", "adaptive_",           "avg_pool3d",      "_ctc_loss",
                                        "embedding",          "fractional_max_pool", "grid_sampler",    "max_pool3d",
                                        "nll_loss2d",         "reflection_pad",      "replication_pad", "upsample_",
                                        "_upsample_"};
  if (name.ends_with('_')) name.remove_suffix(1);
  if (is_one_of(name,
                {"bincount", "ctc_loss", "cumsum", "embedding_bag", "embedding_dense_backward", "histc", "index_add",
                 "index_reduce", "nll_loss2d_forward", "scatter_add", "scatter_reduce", "segment_reduce"})) {
    return true;
  }
  return name.ends_with("_backward") &&
         std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

bool accumulates_in_any_order(std::string_view name) {
  if (name.ends_with('_')) name.remove_suffix(1);
  return is_one_of(name, {"index_put", "put", "_index_put_impl"});
}

std::string short_name(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  return name.substr(name.rfind(':') + 1);
}

CallFacts facts_of(const c10::OperatorHandle& op, const torch::jit::Stack& stack, at::Device device) {
  const std::string name = short_name(op);
  const c10::FunctionSchema& schema = op.schema();
  const Arguments arguments(schema, stack);
  CallFacts facts{.refusal = refusal_of(op, name, arguments)};
  facts.random = is_random(op, name, arguments);
  facts.is_view = op.hasTag(at::Tag::inplace_view) || gives_first_memory(name, arguments);
  facts.compares = name == "equal";
  const bool on_cuda = device.is_cuda() && (op.hasTag(at::Tag::nondeterministic_bitwise) || adds_in_any_order(name));
  const bool any_order =
      !at::globalContext().deterministicAlgorithms() && (on_cuda || puts_in_any_order(name, arguments));
  const bool known = op.operator_name().name.starts_with("aten::") && !changes_its_reserve(name, arguments);
  facts.repeatable = known && !any_order && !facts.compares;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    if (alias != nullptr && alias->isWrite()) facts.written.push_back(i);
  }
  facts.statistics = updated_statistics(schema, name, arguments);
  return facts;
}

}  // namespace reprise
