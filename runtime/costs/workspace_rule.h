// What a call's workspace is at sizes where it was not measured, from sizes where it was.
//
// A workspace is mostly a constant, or a copy of some operands and results beside one: of what a convolution reads, in
// the order that its kernel wants, and of its weights. Such a rule is believed if it holds to the byte at all sizes
// that were measured, two at least, and if no other rule that does says otherwise; and only for sizes that are at most
// twice as large as those and at least half as large, because kernels choose other algorithms far away.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace reprise {

class WorkspaceRule {
 public:
  // bytes: of each operand and result of the call, in the same order at all sizes.
  void learn(std::span<const std::int64_t> bytes, std::int64_t workspace_bytes);
  // Nothing: it has to be measured.
  [[nodiscard]] std::optional<std::int64_t> at(std::span<const std::int64_t> bytes) const;

 private:
  struct Seen {
    std::vector<std::int64_t> bytes;
    std::int64_t workspace_bytes;
  };
  [[nodiscard]] bool is_near(std::span<const std::int64_t> bytes) const;
  // For a workspace that grows by whole copies of two operands, or of one (named twice).
  [[nodiscard]] std::optional<std::int64_t> by_copies(std::span<const std::int64_t> bytes, std::size_t one,
                                                      std::size_t other) const;

  std::vector<Seen> seen_;
};

}  // namespace reprise
