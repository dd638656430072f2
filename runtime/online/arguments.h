// The tensors among the arguments of a call.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>

namespace reprise::online {

// Calls visit(place in a list, tensor) for a tensor, or for each of a list of them. In lists of lists all have place 0.
template <typename Visit>
void for_each_tensor(const c10::IValue& value, Visit visit) {
  if (value.isTensor()) {
    visit(std::size_t{0}, value.toTensor());
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    std::size_t element = 0;
    for (const c10::IValue& tensor : value.toListRef()) {
      if (tensor.isTensor()) visit(element, tensor.toTensor());
      ++element;
    }
  } else if (value.isList()) {
    for (const c10::IValue& list : value.toListRef()) {
      if (!list.isTensorList()) return;
      for (const c10::IValue& tensor : list.toListRef()) visit(std::size_t{0}, tensor.toTensor());
    }
  }
}

[[nodiscard]] inline c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

}  // namespace reprise::online
