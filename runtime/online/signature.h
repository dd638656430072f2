// Numbers that are equal for calls that are alike.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>

namespace reprise::online {

class Hash {
 public:
  void add(std::uint64_t word) {
    state_ ^= word + 0x9E3779B97F4A7C15ULL + (state_ << 6U) + (state_ >> 2U);
    state_ *= 0xFF51AFD7ED558CCDULL;
    state_ ^= state_ >> 33U;
  }
  void add(std::int64_t number) { add(static_cast<std::uint64_t>(number)); }
  [[nodiscard]] std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0;
};

inline void add_shape(Hash& hash, const at::Tensor& tensor) {
  hash.add(static_cast<std::uint64_t>(tensor.scalar_type()));
  for (const std::int64_t size : tensor.sizes()) hash.add(size);
  if (!tensor.has_storage()) return;
  hash.add(tensor.storage_offset());
  for (const std::int64_t stride : tensor.strides()) hash.add(stride);
}

inline void add_whole(Hash& hash, const c10::IValue& value) {
  if (value.isInt()) hash.add(value.toInt());
  if (value.isBool()) hash.add(std::uint64_t{value.toBool() ? 1U : 0U});
  if (!value.isIntList()) return;
  for (const std::int64_t number : value.toIntVector()) hash.add(number);
}

}  // namespace reprise::online
