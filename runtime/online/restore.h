// Brings absent values back by making calls again.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/online/own_stream.h"
#include "runtime/online/values.h"

namespace reprise::online {

class Restorer {
 public:
  // `refuse` throws what an allocation that was refused means to the program.
  using Refuse = std::function<void(const std::string&)>;
  Restorer(Table& table, c10::Device device, Refuse refuse)
      : table_(table), device_(device), stream_(current_stream(device)), refuse_(std::move(refuse)) {}

  // Makes the value resident, and everything on the way to it that is absent. The caller has locked the value, and
  // holds a reference to it.
  void restore(Value& value);

  // Makes everything that the program holds and that is computed from a root independent of it, because the root is
  // about to change.
  void make_independent_of(const Ref<Value>& root);
  // Restores what the program holds of these, and never takes it away again.
  void make_final(std::vector<Ref<Value>> values);

  // Whether what calls on the way back wait for may be taken away once more. It is computed again, so the way ends only
  // if this is not allowed too often.
  [[nodiscard]] bool may_take_waiting() { return ++taken_while_waiting_ <= kMostTakenWhileWaiting; }

  [[nodiscard]] std::int64_t calls() const { return calls_; }
  [[nodiscard]] double cost_ns() const { return cost_ns_; }  // by what the first runs took

 private:
  static constexpr int kMostTakenWhileWaiting = 256;

  void run(Record& record, const Value& wanted);

  Table& table_;
  c10::Device device_;
  std::optional<c10::Stream> stream_;
  Refuse refuse_;
  std::recursive_mutex mutex_;  // one way back at a time
  std::int64_t calls_ = 0;
  double cost_ns_ = 0;
  int taken_while_waiting_ = 0;  // on the latest way back
};

}  // namespace reprise::online
