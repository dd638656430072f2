// Runs the canonical schedule of a sequence one action at a time. Everything that is read must exist, and the bytes
// that are held are added up after each compute. It shares no code with src/.
//
// Forward goes block by block: compute the block, and forget what is not cached. Backward starts at the last block:
// compute again what was forgotten of it; make the gradients of its sinks; run the backward of every op with an input
// in the block, restricted to these inputs, consumers from last to first; then forget. If the gradient of an op reads
// the op's own output, which is gone by then, the op is computed just before and forgotten just after.
#pragma once

#include <cstdint>
#include <string>

#include "oracle/reference.h"

namespace reprise::test {

enum class Frees { kAsWritten, kAfterLastTouch };

struct ReplayResult {
  std::int64_t peak = 0;
  std::int64_t extra_time = 0;
  std::vector<std::int64_t> after_compute{};  // the bytes that are held after each compute
  std::string error{};  // a buffer that is missing when it is read, or is left at the end; "" if all is well
};

[[nodiscard]] ReplayResult replay(const Dag& dag, const Sequence& sequence, Frees frees);

}  // namespace reprise::test
