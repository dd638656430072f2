// What a call takes, where that cannot be timed while the program runs: on CUDA calls return before they are done.
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_map>

#include "runtime/online/operator_card.h"

namespace reprise::online {

// By the roofline, once for each operator with its shapes, types and whole numbers. The same in every process, so that
// equal programs take away the same values.
class CallCosts {
 public:
  explicit CallCosts(c10::DeviceType device) : device_(device) {}

  [[nodiscard]] std::int64_t ns(const OperatorCard& card, const c10::OperatorHandle& op,
                                std::span<const c10::IValue> arguments, std::span<const c10::IValue> results);

 private:
  c10::DeviceType device_;
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::int64_t> known_;
};

}  // namespace reprise::online
