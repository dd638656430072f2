// Collectives that go on beside other ops.
//
// A collective becomes two ops: a call that starts it, on a stream that all groups of processes share, and the wait for
// it:
//
//   w = all_gather(shard)        becomes        in_flight, scratch = all_gather(shard)      starts
//                                               w = wait(shard, in_flight, scratch)         over in_flight
//
// Scratch is what the backend allocates until the collective is over, if that is anything. The wait reads all that may
// not be freed or written over before, so plans may put other ops between the two (graph.h). Here it follows at once.
// Collectives that return several tensors stay one call, which waits by itself.
#pragma once

#include <vector>

#include "runtime/program/program.h"

namespace reprise {

// Returns for each op of the program which op it was before.
[[nodiscard]] std::vector<OpId> split_collectives(Program& program);

}  // namespace reprise
