// Sees every call of an operator on tensors, below autograd, on all threads: forward, backward and optimizer.
//
//   const CallHook hook([&](const c10::OperatorHandle& op) -> CallHook::Handler {
//     return [&](const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack& stack) {
//       op.redispatchBoxed(below, &stack);   // makes the call
//     };
//   });
//
// A boxed kernel stands at the dispatch key BackendSelect, which every call passes. It lies below autograd, autocast,
// Python's modes and fake tensors, so all of these work as without it. Operators that are made of others are not seen,
// but their parts are; factories, which have a kernel of their own at this key, are not seen.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>
#include <vector>

namespace reprise {

// Whether an operator runs as other operators, each of which is a call of its own. Some have such a form and kernels of
// their own, which then run.
[[nodiscard]] bool is_made_of_others(const c10::OperatorHandle& op);

class CallHook {
 public:
  using Handler = std::function<void(const c10::OperatorHandle&, c10::DispatchKeySet below, torch::jit::Stack&)>;
  // The handler of an operator; none: its calls are not of interest.
  using Handlers = std::function<Handler(const c10::OperatorHandle&)>;

  // A process can have one at a time; throws InputError if there is another.
  explicit CallHook(const Handlers& handlers);
  ~CallHook();
  CallHook(const CallHook&) = delete;
  CallHook& operator=(const CallHook&) = delete;

 private:
  std::vector<c10::RegistrationHandleRAII> kernels_;
};

}  // namespace reprise
