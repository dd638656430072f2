// Which value to take away when memory is short.
//
// Problem: some resident value has to go, and nothing is known of what the program will read next.
//
// Idea (Kirisame et al., Dynamic Tensor Rematerialization, ICLR 2021): take the value with the least
//
//   h = (own cost + cost of the absent components next to it) / (bytes * time since the program last read it)
//
// A component is a set of absent values that are computed from each other, so computing one again may mean computing
// them all. Take x -> a -> b -> c with a absent: taking b as well costs the calls of both when c's backward comes, so
// b's h has the cost of a in it. Superseded versions and temporaries that the program dropped are absent too. Only
// reads by the program count, not those of recomputation.
//
// Ghosts go first: a value that was brought back to compute another is held by nobody. What a backward pass has made
// goes after everything else: it is read next, or it is a gradient, whose way back would be the whole pass. What a call
// that is about to be made again waits for goes last: it would have to come back at once.
//
// While a script is followed, what it has freed goes before all of these: first what it does not read again, then what
// it makes again, by
//
//   h = cost in the script's log / (bytes * calls until it is made again)
//
// None of that is measured in the running step, so that all steps that follow a script make the same calls again.
//
// Complexity: one pass over the resident values; neighbours are looked at only where a value's own cost alone does not
// lose already. docs/algorithms/online.md has the same rule as a planner. Tested by
// tests/runtime/online_mode_test.cc and online_follow_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/online/values.h"

namespace reprise::online {

// nullptr: everything that could go is being read.
[[nodiscard]] Value* cheapest(const Table& table, std::int64_t at_ns, std::size_t next_call);

// The largest root that only records hold, if less memory depends on it and all of that is resident: it goes if what
// depends on it is never taken away from now on. nullptr: there is none.
[[nodiscard]] Value* largest_orphan(const Table& table);

}  // namespace reprise::online
