// Which sizes of a step that holds for many would fit, after one was refused.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "runtime/program/family/program_family.h"
#include "runtime/session/size_family.h"

namespace reprise {

struct RefusedSize {
  const ProgramFamily& program;
  std::span<const std::int64_t> symbols;                               // of the size that was refused
  std::int64_t room_bytes = 0;                                         // for the step
  std::function<bool(std::span<const std::int64_t> symbols)> holds{};  // whether the step is the same there
};

// ". This budget is enough if ...", with the largest number that each symbol could have for a plan of the family to be
// enough, the others being as they are. Empty if none is known. Found by bisection: smaller sizes take less.
[[nodiscard]] std::string sizes_that_fit(SizeFamily& family, const RefusedSize& size,
                                         std::span<const std::string> words);

}  // namespace reprise
