#include "runtime/online/storage_copy.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/TensorOptions.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <utility>

#include "runtime/online/thread.h"

namespace reprise::online {
namespace {

at::Tensor bytes_of(c10::Storage storage) {
  const auto bytes = static_cast<std::int64_t>(storage.nbytes());
  const c10::DispatchKey key = c10::computeDispatchKey(c10::ScalarType::Byte, c10::Layout::Strided, storage.device());
  auto tensor = c10::make_intrusive<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key),
                                                     caffe2::TypeMeta::Make<std::uint8_t>());
  tensor->set_sizes_contiguous(bytes);
  return at::Tensor(std::move(tensor));
}

}  // namespace

c10::intrusive_ptr<c10::StorageImpl> copy_of(const c10::Storage& from) {
  const Inside inside;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_modes(c10::python_ks);
  const c10::OptionalDeviceGuard on_device(from.device());
  auto made = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                    static_cast<std::int64_t>(from.nbytes()),
                                                    c10::GetAllocator(from.device_type()), /*resizable=*/true);
  (void)bytes_of(c10::Storage(made)).copy_(bytes_of(from));
  return made;
}

at::Tensor copy_of_number(const at::Tensor& number) {
  const Inside inside;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_modes(c10::python_ks);
  return number.clone();
}

}  // namespace reprise::online
