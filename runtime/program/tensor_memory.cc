#include "runtime/program/tensor_memory.h"

#include <ATen/ScalarOps.h>
#include <ATen/ops/empty.h>
#include <c10/core/TensorImpl.h>

#include <utility>

#include "reprise/error.h"

namespace reprise {

std::uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

void bump_version(const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

bool has_geometry(const at::Tensor& tensor, const Geometry& geometry) {
  if (tensor.scalar_type() != geometry.dtype || tensor.sizes() != at::IntArrayRef(geometry.sizes)) return false;
  if (tensor.numel() == 0) return true;  // an empty tensor has no memory
  return tensor.strides() == at::IntArrayRef(geometry.strides) && tensor.storage_offset() == geometry.offset &&
         tensor.is_conj() == geometry.conj && tensor.is_neg() == geometry.neg;
}

at::Tensor view_of(const at::Tensor& base, const Geometry& geometry) {
  const auto bytes = static_cast<std::int64_t>(base.storage().nbytes());
  if (extent_bytes(geometry) > bytes) {
    throw InputError("the program reads " + to_string(geometry) + " out of " + std::to_string(bytes) + " bytes");
  }
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(base.storage()), base.key_set(),
                                                   c10::scalarTypeToTypeMeta(geometry.dtype));
  impl->set_sizes_and_strides(geometry.sizes, geometry.strides, geometry.offset);
  at::Tensor view(std::move(impl));
  if (view.is_conj() != geometry.conj) view._set_conj(geometry.conj);
  if (view.is_neg() != geometry.neg) view._set_neg(geometry.neg);
  return view;
}

at::Tensor bytes_of(const at::Tensor& tensor) {
  const auto bytes = static_cast<std::int64_t>(tensor.storage().nbytes());
  return view_of(tensor, {.dtype = at::kByte, .sizes = {bytes}, .strides = {1}});
}

at::Tensor copy_of(const at::Tensor& tensor) {
  const at::Tensor bytes = bytes_of(tensor);
  at::Tensor copy = at::empty({bytes.numel()}, bytes.options());
  copy.copy_(bytes);
  return view_of(copy, geometry_of(tensor));
}

at::Tensor rebased(const at::Tensor& tensor, std::int64_t offset) {
  const auto element = static_cast<std::int64_t>(tensor.element_size());
  auto* begin = static_cast<char*>(tensor.storage().mutable_data()) + (tensor.storage_offset() - offset) * element;
  auto* owner = new at::Tensor(tensor);  // NOLINT: the storage's deleter frees it
  c10::DataPtr data(
      begin, owner, [](void* held) { delete static_cast<at::Tensor*>(held); }, tensor.device());
  const auto bytes =
      static_cast<std::int64_t>(tensor.storage().nbytes()) - (tensor.storage_offset() - offset) * element;
  c10::Storage storage(c10::Storage::use_byte_size_t(), c10::SymInt(bytes), std::move(data));
  auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage), tensor.key_set(), tensor.dtype());
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), offset);
  if (!tensor.is_inference()) impl->set_version_counter(tensor.unsafeGetTensorImpl()->version_counter());
  return at::Tensor(std::move(impl));
}

std::vector<at::Tensor> tensors_of(std::span<const c10::IValue> values) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(values.size());
  for (const c10::IValue& value : values) {
    if (value.isTensor()) tensors.push_back(value.toTensor());
    if (!value.isTensorList()) continue;
    for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(tensor);
  }
  return tensors;
}

at::Tensor wrapped_number(const c10::Scalar& number) {
  at::Tensor tensor = c10::scalar_to_tensor(number);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

}  // namespace reprise
