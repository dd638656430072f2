#include "runtime/online/operator_card.h"

#include <ATen/core/List.h>
#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "runtime/kernels/kernel.h"
#include "runtime/program/operator_facts.h"

namespace reprise::online {
namespace {

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

// Operators for which facts_of() or Kernel::repeats() look at the arguments.
bool depends_on_arguments(const c10::OperatorHandle& op, std::string_view name) {
  if (op.hasTag(at::Tag::nondeterministic_seeded)) return true;
  if (name.find("batch_norm") != std::string_view::npos || name.find("rnn") != std::string_view::npos) return true;
  if (is_one_of(name, {"index", "index_put", "index_put_", "_index_put_impl_", "put", "put_"})) return true;
  return std::ranges::any_of(op.schema().arguments(), [](const c10::Argument& a) { return a.name() == "generator"; });
}

std::optional<TensorUse> use_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return std::nullopt;
  return TensorUse{kNoValue, geometry_of(tensor)};
}

Argument argument_of(const c10::IValue& value) {
  Argument argument;
  if (value.isTensor()) {
    if (auto use = use_of(value.toTensor())) argument = {Argument::Kind::kTensor, {}, {std::move(use)}};
  } else if (value.isTensorList()) {
    argument.kind = Argument::Kind::kTensorList;
    for (const at::Tensor& tensor : value.toTensorVector()) argument.tensors.push_back(use_of(tensor));
  } else if (value.isOptionalTensorList()) {
    argument.kind = Argument::Kind::kOptionalTensorList;
    for (const auto& tensor : value.toOptionalTensorVector()) {
      argument.tensors.push_back(tensor ? use_of(*tensor) : std::nullopt);
    }
  } else {
    argument.constant = value;
  }
  return argument;
}

// The same numbers give the same shape, so these can be repeated here, though not in a plan.
bool repeats_its_shape(std::string_view name) {
  return is_one_of(name, {"index", "masked_select", "nonzero", "repeat_interleave"});
}

// The allocator knows a block that another stream uses by its own DataPtr alone, so record_stream() gets that back.
bool replaces(std::string_view name) {
  return is_one_of(name,
                   {"resize_", "resize_as_", "_resize_output_", "set_", "set_data", "_lazy_clone", "record_stream"});
}

// In c10d's operators processes exchange tensors. The schemas do not tell which of them are written.
bool communicates_in_place(const c10::OperatorHandle& op) { return op.schema().name().starts_with("c10d::"); }
// And memory is read and written when the call has returned.
bool communicates(const c10::OperatorHandle& op) {
  return communicates_in_place(op) || op.schema().name().starts_with("_c10d_functional::");
}

bool only_views(const c10::OperatorHandle& op) {
  const std::string name = short_name(op);
  if (replaces(name) || communicates(op)) return false;
  if (op.hasTag(at::Tag::inplace_view)) return true;
  const auto& returns = op.schema().returns();
  return !returns.empty() && std::ranges::all_of(returns, [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

OperatorCard new_card(const c10::OperatorHandle& op, c10::DeviceType device) {
  const std::string name = short_name(op);
  const auto& arguments = op.schema().arguments();
  OperatorCard card{.arguments = arguments.size()};
  for (std::uint32_t i = 0; i < arguments.size(); ++i) {
    const std::string type = arguments[i].type()->str();
    if (type.starts_with("int") || type.starts_with("bool") || type.starts_with("SymInt")) card.whole.push_back(i);
    if (type.find("Tensor") == std::string::npos) continue;
    card.tensors.push_back(i);
    const c10::AliasInfo* alias = arguments[i].alias_info();
    const bool is_written = (alias != nullptr && alias->isWrite()) || communicates_in_place(op);
    if (is_written && name != "record_stream") card.written.push_back(i);
  }
  card.keeps_memory = replaces(name) || communicates(op);
  card.depends = !card.keeps_memory && depends_on_arguments(op, name);
  const Call call{op, std::vector<Argument>(arguments.size())};
  const bool allowed = facts_of(call).refusal.empty() || repeats_its_shape(name);
  card.repeatable = !card.keeps_memory && allowed && Kernel(call).repeats(device);
  return card;
}

}  // namespace

std::shared_ptr<const OperatorCard> card_of(const c10::OperatorHandle& op, c10::DeviceType device) {
  using Cards = std::unordered_map<c10::OperatorName, std::shared_ptr<const OperatorCard>>;
  static auto* all = new std::map<c10::DeviceType, Cards>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = (*all)[device].try_emplace(op.operator_name());
  if (is_new && !only_views(op)) found->second = std::make_shared<const OperatorCard>(new_card(op, device));
  return found->second;
}

Call call_of(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments) {
  Call call{op, {}};
  for (const c10::IValue& argument : arguments) call.arguments.push_back(argument_of(argument));
  return call;
}

CallAnswer answer_of(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments, c10::DeviceType device) {
  const Call call = call_of(op, arguments);
  CallFacts facts = facts_of(call);
  const bool allowed = facts.refusal.empty() || repeats_its_shape(short_name(op));
  return {.repeatable = allowed && Kernel(call).repeats(device),
          .random = facts.random,
          .statistics = std::move(facts.statistics)};
}

}  // namespace reprise::online
