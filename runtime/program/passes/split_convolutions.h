// The backward pass of a large convolution as two calls: the gradients of weight and bias, then that of the input.
//
// One call computes both, each by a kernel of its own, and needs the input and its gradient at the same time. The
// second of two calls takes of the input nothing but its shape, for which a view of other memory will do. Those are
// split that may be at the peak of a plan: the others would only take longer to call.
#pragma once

#include <vector>

#include "runtime/program/program.h"

namespace reprise {

// Returns by op of the new program which one it was before, whole or a part of it.
std::vector<OpId> split_convolutions(Program& program);

}  // namespace reprise
