#include "runtime/online/call_cost.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/costs/roofline.h"
#include "runtime/device/meter.h"
#include "runtime/kernels/kernel.h"
#include "runtime/online/arguments.h"
#include "runtime/online/signature.h"

namespace reprise::online {
namespace {

std::uint64_t signature_of(const OperatorCard& card, std::span<const c10::IValue> arguments) {
  Hash hash;
  hash.add(static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(&card)));
  for (const std::uint32_t i : card.tensors) {
    for_each_tensor(arguments[i], [&](std::size_t element, const at::Tensor& tensor) {
      hash.add(static_cast<std::uint64_t>(element));
      if (tensor.defined()) add_shape(hash, tensor);
    });
  }
  for (const std::uint32_t i : card.whole) add_whole(hash, arguments[i]);
  return hash.value();
}

// A program of this call alone, so far as it describes the call as the cost book does; nothing if tensors have no
// memory to tell one from another.
std::optional<Program> program_of(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments,
                                  c10::Device device) {
  Program program{.device = device};
  ProgramOp described{.call = call_of(op, arguments)};
  std::vector<const c10::StorageImpl*> storages;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    for_each_tensor(arguments[i], [&](std::size_t element, const at::Tensor& tensor) {
      auto& uses = described.call->arguments[i].tensors;
      const c10::StorageImpl* storage = storage_of(tensor);
      if (element >= uses.size() || !uses[element] || storage == nullptr) return;
      const auto known = std::ranges::find(storages, storage);
      uses[element]->value = value_id(static_cast<std::size_t>(known - storages.begin()));
      if (known != storages.end()) return;
      storages.push_back(storage);
      program.values.push_back({.bytes = granted_bytes(device, static_cast<std::int64_t>(storage->nbytes()))});
    });
  }
  bool all_named = true;
  for_each_use(*described.call, [&](const TensorUse& use) { all_named = all_named && use.value != kNoValue; });
  if (!all_named) return std::nullopt;
  program.ops.push_back(std::move(described));
  return program;
}

std::vector<std::optional<TensorUse>> outputs_of(std::span<const c10::IValue> results) {
  std::vector<std::optional<TensorUse>> outputs;
  for (const c10::IValue& result : results) {
    for_each_tensor(result, [&](std::size_t, const at::Tensor& tensor) {
      if (tensor.defined() && tensor.has_storage()) {
        outputs.emplace_back(TensorUse{kNoValue, geometry_of(tensor)});
      } else {
        outputs.emplace_back();
      }
    });
  }
  return outputs;
}

}  // namespace

std::int64_t CallCosts::ns(const OperatorCard& card, const c10::OperatorHandle& op,
                           std::span<const c10::IValue> arguments, std::span<const c10::IValue> results) {
  const std::uint64_t signature = signature_of(card, arguments);
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = known_.try_emplace(signature);
  if (is_new) found->second = look_up(op, arguments, results);
  return found->second;
}

std::int64_t CallCosts::look_up(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments,
                                std::span<const c10::IValue> results) {
  if (!book_) book_.emplace(device_);
  if (const auto program = program_of(op, arguments, device_)) {
    const auto measured = book_->calls().find(Kernel(*program->ops.front().call).describe(*program));
    if (measured != book_->calls().end()) return measured->second.time_ns;
  }
  return roofline_ns({.call = call_of(op, arguments), .outputs = outputs_of(results)}, rates_of(device_.type()));
}

}  // namespace reprise::online
