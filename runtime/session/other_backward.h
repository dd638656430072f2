// The rest of a step whose caller gives gradients for other outputs than its plan expects.
#pragma once

#include <optional>
#include <vector>

#include "reprise/plan.h"
#include "runtime/engine/executor.h"
#include "runtime/program/program.h"

namespace reprise {

// `other` is the same step for other gradients of its outputs: with the same forward, and some calls of backward more
// or fewer. The plan that begins like that of `planned` and then runs what it runs, in its order, as far as `other` has
// it; what `other` has in addition, or what was not kept for that, runs before its first reader. Nothing if the
// forwards differ, or if that is not a plan. How much memory it takes is not asked.
[[nodiscard]] std::optional<Plan> with_backward_of(const Program& other, const Executor& planned);

}  // namespace reprise
