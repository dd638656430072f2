// The terms that all chain planners share.
//
// A chain has tensors y_0 .. y_n; layer k makes y_k (d_k bytes) from y_(k-1). A planner picks the tensors that stay in
// memory after the forward pass; the others are computed again, one segment between two kept tensors at a time, when
// the backward pass arrives there.
//
// Preconditions of every function here, checked by whoever builds the chain: sizes and times are not negative, sums
// stay below 2^59, and a ByteSpan holds at least d_0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace reprise::detail {

using ByteSpan = std::span<const std::int64_t>;  // d_0 .. d_n

// Ascending indices of tensors; y_0 and y_n are understood and not listed, except by the static problem, where y_n is
// a choice like any other.
using Checkpoints = std::vector<std::uint32_t>;

struct ChainAnswer {
  std::int64_t peak_bytes = 0;
  Checkpoints checkpoints{};
};

// One action of a schedule that may run a stage more than once. Stages are numbered 1 .. L; stage k reads the output of
// stage k - 1 (the chain's input for k = 1).
struct ChainAction {
  enum class Kind : std::uint8_t {
    kForwardDrop,       // make the output, free the input
    kForwardKeepInput,  // make the output, keep the input until the stage's backward: a stored checkpoint
    kForwardSaveAll,    // make the output and all that the stage's backward reads; the input stays too
    kBackward,          // needs kForwardSaveAll of this stage; frees what that saved, and the stage's input if stored
  };
  Kind kind;
  std::uint32_t stage;

  friend bool operator==(const ChainAction&, const ChainAction&) = default;
};

}  // namespace reprise::detail
