// A collective on its way: processes exchange tensors while others of this process's ops run.
//
//   Communication begun = Kernel(call).begin(stack);   // the stack has the results, which are not there yet
//   ...
//   begun.wait();
//
// Until then nobody may read or write the results, or write or free the operands. What will never be waited for,
// because its step has failed, goes to a shelf (`abandon`), where its tensors stay until it is over, so that nothing
// else comes to lie in their memory meanwhile.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/program/program.h"

namespace reprise {

class Communication {
 public:
  Communication() = default;
  // Begins the call with the arguments on the stack, in whose place it leaves the results.
  Communication(const Call& call, std::vector<c10::IValue>& stack);

  // Returns when the results are there and, on the CPU, what was allocated beside them is free. Throws what the backend
  // throws. REQUIRES: each result has one other owner.
  void wait();
  // Returns when the results are there; on a device, whatever the current stream gets from now on waits for them.
  // wait() is due nevertheless.
  void wait_until_made();
  [[nodiscard]] const std::optional<std::string>& group() const { return group_; }

 private:
  friend void abandon(Communication communication);

  std::optional<std::string> group_;
  std::vector<at::Tensor> operands_;
  std::vector<at::Tensor> results_;
  std::vector<std::pair<const void*, std::uint64_t>> beside_;  // blocks on the CPU, with their numbers (meter.h)
};

// Puts it on the shelf.
void abandon(Communication communication);
// Waits for everything on the shelf. What has failed is over, too.
void wait_for_abandoned();

}  // namespace reprise
