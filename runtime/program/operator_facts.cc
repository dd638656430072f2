#include "runtime/program/operator_facts.h"

#include <ATen/Context.h>
#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <set>
#include <string_view>

#include "runtime/program/tensor_memory.h"

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

const Argument* find(const Call& call, std::string_view name) {
  const auto found = position(call.op.schema(), name);
  return found ? &call.arguments[*found] : nullptr;
}

// What the argument of that name is, where there is one and it is a constant of that kind.
bool is_true(const Call& call, std::string_view name, bool otherwise = false) {
  const Argument* argument = find(call, name);
  return argument != nullptr && argument->constant.isBool() ? argument->constant.toBool() : otherwise;
}
std::optional<double> number(const Call& call, std::string_view name) {
  const Argument* argument = find(call, name);
  return argument != nullptr && argument->constant.isDouble() ? std::optional(argument->constant.toDouble())
                                                              : std::nullopt;
}

// Whether a kernel of CUDA's adds with atomics, by torch.use_deterministic_algorithms.
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

// Several threads add at one place, also on the CPU.
bool puts_in_any_order(std::string_view name, const Call& call) {
  if (name.ends_with('_')) name.remove_suffix(1);
  return is_one_of(name, {"index_put", "put", "_index_put_impl"}) && is_true(call, "accumulate", /*otherwise=*/true);
}

// Operators that write to what their forward left for them, or draw from a state of their own.
bool changes_its_reserve(std::string_view name, const Call& call) {
  if (is_one_of(name, {"mkldnn_rnn_layer_backward", "_cudnn_rnn_backward", "miopen_rnn_backward"})) return true;
  if (!is_one_of(name, {"_cudnn_rnn", "miopen_rnn"})) return false;
  return number(call, "dropout").value_or(0) > 0 && is_true(call, "train");
}

// Attention is tagged random; it draws nothing at dropout 0.
bool is_random(std::string_view name, const Call& call) {
  if (!call.op.hasTag(at::Tag::nondeterministic_seeded)) return false;
  return name.find("attention") == std::string_view::npos || (number(call, "dropout_p") != 0.0 && number(call, "p") != 0.0);
}

bool indexes_by_mask(const Call& call) {
  const Argument* indices = find(call, "indices");
  if (indices == nullptr || indices->kind != Argument::Kind::kOptionalTensorList) return true;
  return std::ranges::any_of(indices->tensors, [](const std::optional<TensorUse>& use) {
    return use && (use->geometry.dtype == at::kBool || use->geometry.dtype == at::kByte);
  });
}

// A tensor without memory becomes a view of some: cuDNN's recurrent layers see all of their weights as one so.
bool gives_first_memory(std::string_view name, const Call& call) {
  const Argument* self = name == "set_" ? find(call, "self") : nullptr;
  return self != nullptr && self->kind == Argument::Kind::kTensor &&
         extent_bytes(self->tensors.front()->geometry) == 0;
}

std::string refusal_of(std::string_view name, const Call& call) {
  if (name == "_local_scalar_dense") {
    return "the model reads a number out of a tensor (.item<>()): keep it a tensor, or compute it outside of the step";
  }
  if (is_one_of(name, {"resize_", "resize_as_", "set_", "_resize_output_"}) && !gives_first_memory(name, call)) {
    return "it gives a tensor other memory in place: make a new tensor instead";
  }
  const Argument* generator = find(call, "generator");
  if (generator != nullptr && generator->constant.isGenerator() && generator->constant.toGenerator().defined()) {
    return "it draws from a generator of its own, whose position is not known here: use the default generator; a "
           "recurrent layer with dropout does so on CUDA: give it none, and put a Dropout between layers";
  }
  if (name == "equal") return "";
  if (is_one_of(name, {"batch_norm_update_stats", "batch_norm_gather_stats", "batch_norm_gather_stats_with_counts"})) {
    return "it changes running statistics without saying so: use batch_norm";
  }
  if (name == "index")
    return indexes_by_mask(call) ? "a mask picks as many elements as it likes: multiply by it, or use "
                                        "torch::where"
                                      : "";
  if (call.op.hasTag(at::Tag::data_dependent_output) || call.op.hasTag(at::Tag::dynamic_output_shape)) {
    return "what it gives depends on the numbers in its tensors: compute it outside of the step";
  }
  return "";
}

bool trains(const Call& call) { return is_true(call, "training") || is_true(call, "train"); }

std::vector<std::size_t> updated_statistics(std::string_view name, const Call& call) {
  std::vector<std::size_t> found;
  if (!is_one_of(name, {"native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"}) || !trains(call)) return found;
  for (const std::string_view argument : {"running_mean", "running_var"}) {
    const auto i = position(call.op.schema(), argument);
    if (i && call.arguments[*i].kind == Argument::Kind::kTensor) found.push_back(*i);
  }
  return found;
}

// Of operators by the names that users gave. Lives as long as the process.
struct Declared {
  std::mutex mutex;
  std::set<std::string> names;

  static Declared& all() {
    static auto* declared = new Declared;
    return *declared;
  }
};

bool is_declared_repeatable(const c10::OperatorHandle& op) {
  Declared& declared = Declared::all();
  const std::lock_guard lock(declared.mutex);
  return declared.names.contains(c10::toString(op.operator_name()));
}

bool is_repeatable(std::string_view name, const Call& call, at::Device device) {
  if (is_declared_repeatable(call.op)) return true;
  const std::string& full = call.op.operator_name().name;
  if (!full.starts_with("aten::") && !full.starts_with("prims::")) return false;
  if (name == "equal" || changes_its_reserve(name, call)) return false;
  if (at::globalContext().deterministicAlgorithms()) return true;
  if (puts_in_any_order(name, call)) return false;
  return !device.is_cuda() || !(call.op.hasTag(at::Tag::nondeterministic_bitwise) || adds_in_any_order(name));
}

}  // namespace

void declare_repeatable(const std::string& name) {
  Declared& declared = Declared::all();
  const std::lock_guard lock(declared.mutex);
  declared.names.insert(name);
}

std::string short_name(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  return name.substr(name.rfind(':') + 1);
}

CallFacts facts_of(const Call& call, at::Device device) {
  const std::string name = short_name(call.op);
  CallFacts facts{.refusal = refusal_of(name, call)};
  facts.random = is_random(name, call);
  facts.is_view = call.op.hasTag(at::Tag::inplace_view) || gives_first_memory(name, call);
  facts.compares = name == "equal";
  facts.repeatable = is_repeatable(name, call, device);
  const auto& arguments = call.op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* alias = arguments[i].alias_info();
    if (alias != nullptr && alias->isWrite()) facts.written.push_back(i);
  }
  facts.statistics = updated_statistics(name, call);
  return facts;
}

void simplify(Call& call) {
  const std::string name = short_name(call.op);
  const bool trained = name == "native_batch_norm_backward" && trains(call);
  if (trained || name == "cudnn_batch_norm_backward") {
    for (const std::string_view unread : {"running_mean", "running_var"}) {
      call.arguments[*position(call.op.schema(), unread)] = Argument{};
    }
  }
  if (call.op.operator_name().overload_name != "Scalar" || !is_one_of(name, {"add", "sub", "mul", "div"})) return;
  call.op = c10::Dispatcher::singleton().findSchemaOrThrow(call.op.operator_name().name.c_str(), "Tensor");
  call.arguments[1].constant = wrapped_number(call.arguments[1].constant.toScalar());
}

}  // namespace reprise
