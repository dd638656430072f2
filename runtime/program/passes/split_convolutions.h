// The backward pass of a large convolution as two calls: the gradients of weight and bias, then that of the input.
//
// One call computes both, each by a kernel of its own, and needs the input and its gradient at the same time. The
// second of two calls needs only the shape of the input, for which a view of other memory is enough. Only convolutions
// that may be at the peak of a plan are split; two calls for the others would only take longer.
#pragma once

#include <vector>

#include "runtime/program/program.h"

namespace reprise {

// Returns, for each op of the new program, the op it was before or was a part of.
std::vector<OpId> split_convolutions(Program& program);

}  // namespace reprise
