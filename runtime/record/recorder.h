// Records the calls that ordinary code makes, below autograd, as a Program.
//
//   Recorder recorder("net", device);
//   recorder.resident(parameter, "layer1.conv.weight");
//   {
//     const Recording recording(recorder);   // every operator called in this scope, and in its backward passes
//     loss = ...;
//     recorder.end_forward(loss);
//     loss.backward();
//   }
//   Program program = recorder.finish(gradients);
//
// A value is a version of a storage. Which results share memory is observed, not taken from schemas: a call whose
// results all lie in memory that exists already is a view and leaves no op. Storages are identified by weak pointers,
// so that memory is freed as without a recorder, and no address is used twice. The ProgramBuilder makes everything that
// is not a call.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/program/program_builder.h"

namespace reprise {

class Recorder {
 public:
  Recorder(std::string name, at::Device device);

  // Memory that exists before the step. The scope of ops that read it is its name without the last part.
  TensorUse resident(const at::Tensor& tensor, const std::string& name);
  // The same, as the next tensor that forward gets.
  void input(const at::Tensor& tensor, const std::string& name);
  // What comes now is backward.
  void end_forward(const at::Tensor& loss);
  // `gradients` are the tensors that hold gradients at the end of backward. Nothing can be recorded afterwards.
  [[nodiscard]] Program finish(const std::vector<at::Tensor>& gradients);

  // Makes a call and records it. May be called from autograd's threads.
  void call(const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack& stack);

 private:
  struct Known {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    ValueId memory;
  };

  [[nodiscard]] TensorUse use_of(const at::Tensor& tensor);
  TensorUse adopt(const at::Tensor& tensor);
  void adopt_filled_by_hand(const torch::jit::Stack& arguments, const CallFacts& facts, Call& call);
  [[nodiscard]] Argument argument_of(const c10::IValue& value);
  void check_writable(const std::vector<at::Tensor>& tensors, const std::string& name) const;
  void check_not_grown(const std::vector<at::Tensor>& tensors, const std::string& name) const;
  [[nodiscard]] Uses new_results(const std::vector<at::Tensor>& results, const std::string& name);
  [[nodiscard]] std::string next_name(const std::string& name);
  [[nodiscard]] std::string scope_of(const Call& call);
  [[nodiscard]] const Program& program() const { return builder_.program(); }

  std::mutex mutex_;
  ProgramBuilder builder_;
  std::unordered_map<const c10::StorageImpl*, Known> storages_;
  std::vector<std::string> scopes_;  // by name of memory that existed before the step
  std::map<std::string, std::size_t> names_;
  std::set<ValueId> empty_;  // memory made by operators that leave it as it is
  std::string scope_;        // the scope of the latest op
};

// While this object exists, the calls of this thread, and of backward passes begun in it, go to the recorder. A process
// can have one at a time; throws InputError if there is another.
class Recording {
 public:
  explicit Recording(Recorder& recorder);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  std::vector<c10::RegistrationHandleRAII> kernels_;
  std::optional<c10::impl::IncludeDispatchKeyGuard> include_;
};

}  // namespace reprise
