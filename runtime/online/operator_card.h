// What the online mode has to know of an operator, looked up once: whether a call of it can be made again.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/program/program.h"

namespace reprise::online {

struct OperatorCard {
  std::size_t arguments = 0;
  std::vector<std::uint32_t> tensors{};  // arguments that are tensors or lists of them
  std::vector<std::uint32_t> written{};  // those of them whose memory a call writes
  std::vector<std::uint32_t> whole{};    // arguments that are whole numbers, truths, or lists of them
  bool repeatable = false;               // the same arguments give the same bits, unless `depends`
  bool depends = false;                  // on the arguments of a call: ask answer_of()
  bool keeps_memory = false;             // of its arguments: for other storages, or for longer than the call runs
};

// Nothing if calls only see memory in another way, so that nobody has to know of them. Made once for each operator and
// kind of device, and kept.
[[nodiscard]] std::shared_ptr<const OperatorCard> card_of(const c10::OperatorHandle& op, c10::DeviceType device);

struct CallAnswer {
  bool repeatable = false;
  bool random = false;
  std::vector<std::size_t> statistics{};  // arguments that a first run updates and later runs do without
};
[[nodiscard]] CallAnswer answer_of(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments,
                                   c10::DeviceType device);

// The call as a program would have it, without names for the values that it reads.
[[nodiscard]] Call call_of(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);

}  // namespace reprise::online
