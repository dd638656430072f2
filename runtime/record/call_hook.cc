#include "runtime/record/call_hook.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "reprise/error.h"

namespace reprise {
namespace {

using c10::DispatchKey;

std::atomic<bool> in_use = false;

const c10::DispatchKeySet kBelowHook(c10::DispatchKeySet::FULL_AFTER, DispatchKey::BackendSelect);

struct HandledCall final : c10::OperatorKernel {
  explicit HandledCall(CallHook::Handler handler) : handler_(std::move(handler)) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    handler_(op, keys & kBelowHook, *stack);
  }

 private:
  CallHook::Handler handler_;
};

bool takes_tensors(const c10::OperatorHandle& op) {
  return std::ranges::any_of(op.schema().arguments(), [](const c10::Argument& argument) {
    const std::string type = argument.type()->str();
    return type.find("Tensor") != std::string::npos;
  });
}

}  // namespace

bool is_made_of_others(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(DispatchKey::CPU) && !op.hasKernelForDispatchKey(DispatchKey::CUDA);
}

CallHook::CallHook(const Handlers& handlers) {
  if (in_use.exchange(true)) {
    throw InputError("another step is being captured, or another online mode is at work: end it first");
  }
  try {
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      const auto op = dispatcher.findSchema(name);
      if (!op || op->hasKernelForDispatchKey(DispatchKey::BackendSelect) || is_made_of_others(*op)) continue;
      if (!takes_tensors(*op)) continue;
      Handler handler = handlers(*op);
      if (!handler) continue;
      kernels_.push_back(dispatcher.registerImpl(
          name, DispatchKey::BackendSelect,
          c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<HandledCall>(std::move(handler))), std::nullopt,
          nullptr, "reprise"));
    }
  } catch (...) {
    kernels_.clear();
    in_use = false;
    throw;
  }
}

CallHook::~CallHook() {
  kernels_.clear();
  in_use = false;
}

}  // namespace reprise
