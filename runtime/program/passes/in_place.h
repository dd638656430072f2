// Results that may be written over operands.
//
// A pointwise operator reads an element of its operands before it writes that of its result, so the result may lie over
// an operand that nothing reads any more. The softmax kernels do the same row by row. If an operator has a form that
// writes to memory it is given, a call of it gets a second call: out = operand. If several operands are possible, the
// one with the fewest later readers is named. Plans decide whether to use it: a value that is read later is not written
// over. A generated kernel says itself which of its results may lie over which operands (kernels/launch.h); of these
// pairs the call that is in place has those that are named.
#pragma once

#include "runtime/program/program.h"

namespace reprise {

// The operator that runs a generated kernel.
inline constexpr const char* kLaunch = "reprise::launch";

void write_in_place(Program& program);

}  // namespace reprise
