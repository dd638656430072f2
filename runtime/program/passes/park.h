// The optimizer's state as a part of a step, so that a plan may let it wait in the host's memory meanwhile.
//
// No call reads the state. It becomes inputs that are there at the start, and the op in which autograd takes the
// gradients, the last of the step, reads them: so they are there again at the end. In between they have a gap like any
// other value, and a planner decides by the same price which of them to store and when to fetch them. Ops keep their
// ids, and so do the other values: a plan of the step without the state is also one of the step with it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "runtime/program/program.h"

namespace reprise {

// REQUIRES: the tensors lie in distinct storages on the program's device.
[[nodiscard]] std::shared_ptr<Program> with_state(const Program& program, std::span<const at::Tensor> state);
// Whether with_state() would give the program these inputs. REQUIRES: as above.
[[nodiscard]] bool has_state(const Program& program, std::span<const at::Tensor> state);
// The values of the state, in its order.
[[nodiscard]] std::vector<ValueId> state_values(const Program& program);

}  // namespace reprise
