// Copies of the whole memory of a storage.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

namespace reprise::online {

// On the current stream, as a part of the call that is running. The caller has locked what lies in the storage.
[[nodiscard]] c10::intrusive_ptr<c10::StorageImpl> copy_of(const c10::Storage& from);

// A copy of a single number on the CPU that a call on another device reads.
[[nodiscard]] at::Tensor copy_of_number(const at::Tensor& number);

}  // namespace reprise::online
