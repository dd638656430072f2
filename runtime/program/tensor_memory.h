// Tensors as views of memory: turns the values of a program into the tensors that calls get.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/program/program.h"

namespace reprise {

// Autograd's count of in-place changes; inference tensors do not have one.
[[nodiscard]] std::uint32_t version_of(const at::Tensor& tensor);
void bump_version(const at::Tensor& tensor);

// All bytes of the tensor's storage, in place.
[[nodiscard]] at::Tensor bytes_of(const at::Tensor& tensor);

// A copy of the tensor with all of its storage, in memory of its own.
[[nodiscard]] at::Tensor copy_of(const at::Tensor& tensor);

// The tensor that `geometry` describes on the storage of `base`.
[[nodiscard]] at::Tensor view_of(const at::Tensor& base, const Geometry& geometry);
// Whether the tensor is just what `geometry` describes.
[[nodiscard]] bool has_geometry(const at::Tensor& tensor, const Geometry& geometry);

// The tensors among the arguments or results of a call, including those in lists, in order.
[[nodiscard]] std::vector<at::Tensor> tensors_of(std::span<const c10::IValue> values);

// A number for an argument that is a tensor in the schema; its type does not take part in promotion.
[[nodiscard]] at::Tensor wrapped_number(const c10::Scalar& number);

// The same memory as seen from a storage that begins so that the tensor's offset is `offset`: calls address memory from
// the beginning of a storage, and a batch may be any slice of a larger tensor.
[[nodiscard]] at::Tensor rebased(const at::Tensor& tensor, std::int64_t offset);

}  // namespace reprise
