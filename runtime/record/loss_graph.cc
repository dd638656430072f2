#include "runtime/record/loss_graph.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <unordered_set>

#include "reprise/error.h"

namespace reprise {

void check_parameters(const at::Tensor& loss, const std::vector<at::Tensor>& known, const std::string& name) {
  std::unordered_set<const c10::TensorImpl*> expected;
  for (const at::Tensor& tensor : known) expected.insert(tensor.unsafeGetTensorImpl());
  std::unordered_set<torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> pending{loss.grad_fn().get()};
  while (!pending.empty()) {
    torch::autograd::Node* node = pending.back();
    pending.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(node);
    if (leaf != nullptr && !expected.contains(leaf->variable.unsafeGetTensorImpl())) {
      throw InputError("the loss of '" + name +
                       "' depends on a tensor with requires_grad that is not a parameter of the " +
                       "module, and whose gradient would be lost: register it, or the module it is in");
    }
    for (const torch::autograd::Edge& edge : node->next_edges()) pending.push_back(edge.function.get());
  }
}

}  // namespace reprise
