// What a call's workspace is at sizes where it was not measured, from sizes where it was.
//
// The workspace of a kernel that allocates in the same way at all sizes is a constant, or copies of some operands and
// results beside one. Such a rule is believed if it holds to the byte at all sizes that were measured, two at least,
// and if no other rule that does says otherwise; and only for sizes that are at most twice as large as those and at
// least half as large. After some sizes without a rule, none is looked for.
#pragma once

#include <cstddef>
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
  // How many are remembered.
  [[nodiscard]] std::size_t known_sizes() const { return seen_.size(); }

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
  bool is_given_up_ = false;
};

}  // namespace reprise
