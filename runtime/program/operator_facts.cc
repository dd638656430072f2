#include "runtime/program/operator_facts.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <string_view>

#include "runtime/program/tensor_memory.h"

namespace reprise {
namespace {

using Names = std::initializer_list<std::string_view>;

bool is_one_of(std::string_view name, Names names) { return std::ranges::find(names, name) != names.end(); }

// Attention is tagged as random, but draws nothing at dropout 0.
bool is_random(std::string_view name, const Call& call) {
  if (!call.op.hasTag(at::Tag::nondeterministic_seeded)) return false;
  const bool attends = name.find("attention") != std::string_view::npos;
  return !attends || (number(call, "dropout_p") != 0.0 && number(call, "p") != 0.0);
}

bool indexes_by_mask(const Call& call) {
  const Argument* indices = call.argument("indices");
  if (indices == nullptr || indices->kind != Argument::Kind::kOptionalTensorList) return true;
  return std::ranges::any_of(indices->tensors, [](const std::optional<TensorUse>& use) {
    return use && (use->geometry.dtype == at::kBool || use->geometry.dtype == at::kByte);
  });
}

// Whether a tensor without memory becomes a view: cuDNN's recurrent layers see all of their weights as one tensor in
// this way.
bool gives_first_memory(std::string_view name, const Call& call) {
  const Argument* self = name == "set_" ? call.argument("self") : nullptr;
  return self != nullptr && self->kind == Argument::Kind::kTensor && extent_bytes(self->tensors.front()->geometry) == 0;
}

std::string refusal_of(std::string_view name, const Call& call) {
  if (name == "_local_scalar_dense") {
    return "the model reads a number out of a tensor (.item<>()): keep it a tensor, or compute it outside of the step";
  }
  if (is_one_of(name, {"resize_", "resize_as_", "set_", "_resize_output_"}) && !gives_first_memory(name, call)) {
    return "it replaces the memory of a tensor in place: make a new tensor instead";
  }
  const Argument* generator = call.argument("generator");
  if (generator != nullptr && generator->constant.isGenerator() && generator->constant.toGenerator().defined()) {
    return "it draws from a generator of its own, whose position is not known here: use the default generator; a "
           "recurrent layer with dropout does so on CUDA: give it none, and put a Dropout between layers";
  }
  if (name == "equal") return "";
  if (is_one_of(name, {"batch_norm_update_stats", "batch_norm_gather_stats", "batch_norm_gather_stats_with_counts"})) {
    return "it changes running statistics, which its schema does not say: use batch_norm";
  }
  if (name == "index")
    return indexes_by_mask(call) ? "how many elements a mask selects depends on its numbers: multiply by it, or use "
                                   "torch::where"
                                 : "";
  if (ends_process_on_made_up_numbers(call.op)) {
    return "how often it repeats each element depends on the numbers in a tensor: repeat by a whole number, or use "
           "indices";
  }
  if (call.op.hasTag(at::Tag::data_dependent_output) || call.op.hasTag(at::Tag::dynamic_output_shape)) {
    return "its result depends on the numbers in its tensors: compute it outside of the step";
  }
  return "";
}

bool trains(const Call& call) { return flag(call, "training") || flag(call, "train"); }

std::vector<std::size_t> updated_statistics(std::string_view name, const Call& call) {
  std::vector<std::size_t> found;
  if (!is_one_of(name, {"native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"}) || !trains(call)) return found;
  for (const char* buffer : {"running_mean", "running_var"}) {
    const Argument* argument = call.argument(buffer);
    if (argument == nullptr || argument->kind != Argument::Kind::kTensor) continue;
    found.push_back(static_cast<std::size_t>(argument - call.arguments.data()));
  }
  return found;
}

}  // namespace

bool flag(const Call& call, std::string_view argument, bool otherwise) {
  const Argument* found = call.argument(argument);
  return found != nullptr && found->constant.isBool() ? found->constant.toBool() : otherwise;
}

std::optional<double> number(const Call& call, std::string_view argument) {
  const Argument* found = call.argument(argument);
  if (found == nullptr || !found->constant.isDouble()) return std::nullopt;
  return found->constant.toDouble();
}

std::string short_name(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  return name.substr(name.rfind(':') + 1);
}

bool ends_process_on_made_up_numbers(const c10::OperatorHandle& op) { return short_name(op) == "repeat_interleave"; }

CallFacts facts_of(const Call& call) {
  const std::string name = short_name(call.op);
  CallFacts facts{.refusal = refusal_of(name, call)};
  facts.random = is_random(name, call);
  facts.is_view = call.op.hasTag(at::Tag::inplace_view) || gives_first_memory(name, call);
  facts.compares = name == "equal";
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
    for (const char* unread : {"running_mean", "running_var"}) {
      call.arguments[static_cast<std::size_t>(call.argument(unread) - call.arguments.data())] = Argument{};
    }
  }
  if (call.op.operator_name().overload_name != "Scalar" || !is_one_of(name, {"add", "sub", "mul", "div"})) return;
  call.op = c10::Dispatcher::singleton().findSchemaOrThrow(call.op.operator_name().name.c_str(), "Tensor");
  call.arguments[1].constant = wrapped_number(call.arguments[1].constant.toScalar());
}

}  // namespace reprise
