// Rows of different lengths in one array.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace reprise::detail {

template <typename T>
class Csr {
 public:
  void push_row(std::span<const T> items) {
    items_.insert(items_.end(), items.begin(), items.end());
    begin_.push_back(items_.size());
  }
  [[nodiscard]] std::span<const T> operator[](std::size_t row) const {
    return {items_.data() + begin_[row], begin_[row + 1] - begin_[row]};
  }
  [[nodiscard]] std::size_t rows() const { return begin_.size() - 1; }
  [[nodiscard]] std::size_t items() const { return items_.size(); }

 private:
  std::vector<std::size_t> begin_{0};
  std::vector<T> items_;
};

}  // namespace reprise::detail
