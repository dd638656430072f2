// What a call takes, where that cannot be timed while the program runs: on CUDA calls return before they are done.
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>

#include "runtime/costs/cost_book.h"
#include "runtime/online/operator_card.h"

namespace reprise::online {

// As captured steps have measured it here (cost_book.h), else by the roofline, once for each operator with its shapes,
// types and whole numbers. It does not change while a process runs, so that equal programs take away the same values.
class CallCosts {
 public:
  explicit CallCosts(c10::Device device) : device_(device) {}

  [[nodiscard]] std::int64_t ns(const OperatorCard& card, const c10::OperatorHandle& op,
                                std::span<const c10::IValue> arguments, std::span<const c10::IValue> results);

 private:
  [[nodiscard]] std::int64_t look_up(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments,
                                     std::span<const c10::IValue> results);

  c10::Device device_;
  std::mutex mutex_;
  std::optional<CostBook> book_;  // opened for the first call
  std::unordered_map<std::uint64_t, std::int64_t> known_;
};

}  // namespace reprise::online
