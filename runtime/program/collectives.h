// Calls in which processes exchange tensors, by PyTorch's functional collectives. All processes of a group have to make
// the same such calls in the same order. What a call returns is there when it was waited for: by an op of its own, or,
// where the program has none for it, before the call returns (passes/split_collectives.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/program/program.h"

namespace reprise {

[[nodiscard]] bool is_collective(const Call& call);
// Whether it is a collective that only moves bytes, so that a plan of all processes may run it again. A reduction may
// add in another order the next time.
[[nodiscard]] bool moves_bytes(const Call& call);
// Bytes that are allocated until the call was waited for, beside its operands and results: operands that do not lie in
// one piece are copied, and gloo, which serves the CPU, gathers and scatters through a copy.
[[nodiscard]] std::int64_t workspace_of(const Program& program, const ProgramOp& collective);
// Bytes that each of `ranks` processes sends while the call runs, where they stand in a ring. A gather of B bytes in
// all, or a scatter of the sum of B bytes, sends B * (ranks - 1) / ranks; an all-reduce is a scatter and a gather.
[[nodiscard]] std::int64_t sent_bytes(const ProgramOp& collective, std::int64_t ranks);
// The group in which a collective communicates; nothing if it does not name one.
[[nodiscard]] std::optional<std::string> group_of(const Call& collective);
// The names of all groups in which the program communicates, without repetition.
[[nodiscard]] std::vector<std::string> groups_of(const Program& program);

// The step, one line for each op, as far as it has to be the same in all processes: operators, geometry, which ops read
// and make which values, which run once. Numbers that are passed to operators may differ, and so do the places where
// views begin and the names of groups.
[[nodiscard]] std::string outline_of(const Program& program);

}  // namespace reprise
