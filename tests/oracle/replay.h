// The canonical schedule of a sequence, run one action at a time: every read must be there, and what is held is summed
// after each compute. Shares nothing with src/.
//
// Forward, block by block: compute it, forget what is not cached. Backward, from the last block: compute again what was
// forgotten of it; make the gradients of its sinks; run the backward of every op with an input in the block, restricted
// to these inputs, consumers from last to first; forget. An op whose gradient reads its own output, which is gone by
// then, is computed just before and forgotten just after.
#pragma once

#include <cstdint>
#include <string>

#include "oracle/reference.h"

namespace reprise::test {

enum class Frees { kAsWritten, kAfterLastTouch };

struct ReplayResult {
  std::int64_t peak = 0;
  std::int64_t extra_time = 0;
  std::vector<std::int64_t> after_compute{};  // bytes held
  std::string error{};  // a read that was not there, or something left at the end; "" if all is well
};

[[nodiscard]] ReplayResult replay(const Dag& dag, const Sequence& sequence, Frees frees);

}  // namespace reprise::test
