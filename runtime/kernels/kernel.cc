#include "runtime/kernels/kernel.h"

#include <ATen/Context.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <set>
#include <string_view>

#include "reprise/error.h"
#include "runtime/device/meter.h"
#include "runtime/files/program_text.h"
#include "runtime/kernels/launch.h"
#include "runtime/program/collectives.h"
#include "runtime/program/operator_facts.h"

namespace reprise {
namespace {

using detail::double_text;

// The text of a wrapped number, which is a tensor of one element on the CPU. It is read in place, because calls may be
// recorded.
std::string number_text(const at::Tensor& tensor) {
  const void* data = tensor.storage().data();
  if (tensor.scalar_type() == at::kDouble) return double_text(*static_cast<const double*>(data));
  if (tensor.scalar_type() == at::kLong) return std::to_string(*static_cast<const std::int64_t*>(data));
  if (tensor.scalar_type() == at::kBool) return *static_cast<const bool*>(data) ? "true" : "false";
  if (tensor.scalar_type() == at::kComplexDouble) {
    const auto& number = *static_cast<const c10::complex<double>*>(data);
    return double_text(number.real()) + " + " + double_text(number.imag()) + "j";
  }
  throw InternalError("a constant tensor is not a number");
}

std::string constant_text(const c10::IValue& value) {
  if (value.isNone()) return "none";
  if (value.isBool()) return value.toBool() ? "true" : "false";
  if (value.isInt()) return std::to_string(value.toInt());
  if (value.isDouble()) return double_text(value.toDouble());
  if (value.isString()) return value.toStringRef();
  if (value.isDevice()) return value.toDevice().str();
  if (value.isTensor()) return value.toTensor().defined() ? "number " + number_text(value.toTensor()) : "undefined";
  if (!value.isList()) return value.tagKind();
  std::string text = "[";
  for (const c10::IValue& element : value.toListRef()) text += constant_text(element) + ' ';
  return text + ']';
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

// Whether a CUDA kernel adds with atomics, according to torch.use_deterministic_algorithms.
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

// Whether several threads add to the same element, which also happens on the CPU.
bool puts_in_any_order(std::string_view name, const Call& call) {
  if (name.ends_with('_')) name.remove_suffix(1);
  return is_one_of(name, {"index_put", "put", "_index_put_impl"}) && flag(call, "accumulate", /*otherwise=*/true);
}

// Whether the operator writes to what its forward left for it, or draws from a state of its own.
bool changes_its_reserve(std::string_view name, const Call& call) {
  if (is_one_of(name, {"mkldnn_rnn_layer_backward", "_cudnn_rnn_backward", "miopen_rnn_backward"})) return true;
  if (!is_one_of(name, {"_cudnn_rnn", "miopen_rnn"})) return false;
  return number(call, "dropout").value_or(0) > 0 && flag(call, "train");
}

// Operators that users declared repeatable. Lives as long as the process.
struct Declared {
  std::mutex mutex;
  std::set<std::string> names;

  static Declared& all() {
    static auto* declared = new Declared;
    return *declared;
  }
  [[nodiscard]] bool has(const c10::OperatorHandle& op) {
    const std::lock_guard lock(mutex);
    return names.contains(c10::toString(op.operator_name()));
  }
};

}  // namespace

void Kernel::run(std::vector<c10::IValue>& stack) const {
  if (is_collective(*call_)) return begin(stack).wait();
  const at::AutoGradMode grad_mode(call_->grad_mode);
  call_->op.callBoxed(stack);
}

Communication Kernel::begin(std::vector<c10::IValue>& stack) const {
  const at::AutoGradMode grad_mode(call_->grad_mode);
  return {*call_, stack};
}

std::string Kernel::describe(const Program& program) const {
  std::string text = call_->op.operator_name().name + "." + call_->op.operator_name().overload_name;
  std::map<ValueId, std::size_t> order;
  for (const Argument& argument : call_->arguments) {
    text += ';';
    if (argument.kind == Argument::Kind::kConstant) {
      text += constant_text(argument.constant);
      continue;
    }
    for (const auto& tensor : argument.tensors) {
      if (!tensor) {
        text += "none,";
        continue;
      }
      const std::size_t number = order.try_emplace(tensor->value, order.size()).first->second;
      text += '#' + std::to_string(number) + ' ' + to_string(tensor->geometry) + ',';
      const std::int64_t bytes = program.values[index(tensor->value)].bytes;
      // Some operators copy whole storages.
      const std::int64_t granted = granted_bytes(program.device, extent_bytes(tensor->geometry));
      if (bytes > granted) text += " of " + std::to_string(bytes);
    }
  }
  return text;
}

bool Kernel::repeats(at::Device device) const {
  if (Declared::all().has(call_->op)) return true;
  const std::string& full = call_->op.operator_name().name;
  if (full == kLaunch) return !uses_atomics(*call_);
  if (!full.starts_with("aten::") && !full.starts_with("prims::")) return false;
  const std::string name = short_name(call_->op);
  if (name == "equal" || changes_its_reserve(name, *call_)) return false;
  if (at::globalContext().deterministicAlgorithms()) return true;
  if (puts_in_any_order(name, *call_)) return false;
  return !device.is_cuda() || !(call_->op.hasTag(at::Tag::nondeterministic_bitwise) || adds_in_any_order(name));
}

void declare_repeatable(const std::string& name) {
  Declared& declared = Declared::all();
  const std::lock_guard lock(declared.mutex);
  declared.names.insert(name);
}

}  // namespace reprise
