// Runs something again on saved values of the buffers that it writes to.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/copy.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace reprise {

[[nodiscard]] inline std::vector<at::Tensor> copies(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) result.push_back(tensor.defined() ? tensor.clone() : tensor);
  return result;
}

// Swaps saved values in; the end of the scope puts the current ones back. Version counters do not change, because for
// autograd nothing has happened to tensors that end as they were.
class BufferReplay {
 public:
  BufferReplay(std::vector<at::Tensor> buffers, const std::vector<at::Tensor>& saved)
      : buffers_(std::move(buffers)), current_(copies(buffers_)) {
    write(saved);
  }
  ~BufferReplay() { write(current_); }
  BufferReplay(const BufferReplay&) = delete;
  BufferReplay& operator=(const BufferReplay&) = delete;

 private:
  void write(const std::vector<at::Tensor>& values) const {
    const at::NoGradGuard no_grad;
    const at::AutoDispatchBelowADInplaceOrView no_versions;
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (buffers_[i].defined()) buffers_[i].copy_(values[i]);
    }
  }

  std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> current_;
};

}  // namespace reprise
