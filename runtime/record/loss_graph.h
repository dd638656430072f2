// What a loss depends on, according to its autograd graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace reprise {

// Throws InputError if backward of `loss` gives a gradient to a tensor that is not one of `known`.
void check_parameters(const at::Tensor& loss, const std::vector<at::Tensor>& known, const std::string& name);

}  // namespace reprise
