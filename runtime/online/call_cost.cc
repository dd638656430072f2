#include "runtime/online/call_cost.h"

#include <cstdint>

#include "runtime/costs/roofline.h"
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

}  // namespace

std::int64_t CallCosts::ns(const OperatorCard& card, const c10::OperatorHandle& op,
                           std::span<const c10::IValue> arguments, std::span<const c10::IValue> results) {
  const std::uint64_t signature = signature_of(card, arguments);
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = known_.try_emplace(signature);
  if (is_new) {
    ProgramOp described{.call = call_of(op, arguments)};
    for (const c10::IValue& result : results) {
      for_each_tensor(result, [&](std::size_t, const at::Tensor& tensor) {
        if (tensor.defined() && tensor.has_storage()) {
          described.outputs.emplace_back(TensorUse{kNoValue, geometry_of(tensor)});
        } else {
          described.outputs.emplace_back();
        }
      });
    }
    found->second = roofline_ns(described, rates_of(device_));
  }
  return found->second;
}

}  // namespace reprise::online
