// A program whose chain runs slice by slice.
//
//   before:  a = mm(x, w) [64, 1000];  b = log_softmax(a);  c = mm(b, v) [64, 10]
//   after:   c0 = empty [64, 10]
//            a1 = mm(x[0:32], w);   b1 = log_softmax(a1);  c1 = mm(b1, v) written to rows 0:32 of c0
//            a2 = mm(x[32:64], w);  b2 = log_softmax(a2);  c2 = mm(b2, v) written to rows 32:64 of c1
//
// A value inside the chain becomes one value a slice, which a plan may keep, drop and compute again by itself. An end
// stays one value. Its memory is made by an op, and each slice makes a new version of it by writing its part over the
// version before, as any other call in place does. So the order of the slices follows from the versions, a plan that
// computes an end again runs all of its slices again, and nobody who plans, checks, simulates or runs a step has to
// know of slices. A version is read by the next slice alone, so that liveness runs every write in place; a plan that
// keeps an older version pays for a copy, which the simulator counts.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/program/program.h"
#include "runtime/program/slices/chain.h"

namespace reprise {

// A value of the sliced program, in terms of the program before.
struct ValueOrigin {
  ValueId whole = kNoValue;
  std::int64_t begin_bytes = 0;  // in the memory of the whole value, where this part begins
  std::int64_t bytes = -1;       // of the part; -1: all
};

struct SlicedProgram {
  std::shared_ptr<Program> program;
  std::shared_ptr<const Program> whole;  // its losses keep rows
  std::vector<OpId> op_origins{};        // by op of the program: of which op of the whole it is a part, or kNoOp
  std::vector<ValueOrigin> value_origins{};
  std::map<OpId, OpId> alike{};  // the same call at another place in memory, so that one of them is measured
  Chain chain{};                 // of the whole
  std::int64_t slices = 0;
};

// Nothing if a call that must stay where it is lies between those of the chain. `slices` is at most the chain's units.
[[nodiscard]] std::optional<SlicedProgram> slice_program(std::shared_ptr<const Program> whole, const Chain& chain,
                                                         std::int64_t slices);

// The program as the slices of others are made from: losses keep rows, and nothing is written in place yet.
[[nodiscard]] std::shared_ptr<const Program> prepare_for_slices(const Program& program);

// For people: "mm, _log_softmax, gather in head, the model itself".
[[nodiscard]] std::string words_of(const Program& program, const Chain& chain);

}  // namespace reprise
