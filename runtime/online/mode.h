// The online mode at work: sees every call, notes how results were made, takes memory away when the allocator asks, and
// brings it back before it is read.
#pragma once

#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "reprise/torch/online.h"
#include "runtime/device/meter.h"
#include "runtime/online/call_cost.h"
#include "runtime/online/follow.h"
#include "runtime/online/operator_card.h"
#include "runtime/online/own_stream.h"
#include "runtime/online/restore.h"
#include "runtime/online/values.h"
#include "runtime/record/call_hook.h"

namespace reprise::online {

[[nodiscard]] std::int64_t now_ns();

// The tracked values that a call reads, locked for as long as this object exists.
class Reading {
 public:
  explicit Reading(Table& table) : table_(table) {}
  ~Reading();
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

  void add(const OperatorCard& card, std::span<const c10::IValue> arguments);
  // With the table's lock: the program has read them, and their storages tell of accesses by hand again.
  void done(std::int64_t at_ns);
  [[nodiscard]] bool lacks_some() const { return lacks_some_; }
  [[nodiscard]] std::span<const Ref<Value>> values() const { return {values_.data(), values_.size()}; }

 private:
  void add(const at::Tensor& tensor);

  Table& table_;
  c10::SmallVector<Ref<Value>, 6> values_;
  bool lacks_some_ = false;
};

class Mode final : public RoomMaker {
 public:
  explicit Mode(OnlineOptions options);
  ~Mode() override;

  // Restores what the program holds and stops.
  void end();
  void set_budget(std::int64_t bytes);
  [[nodiscard]] OnlineSummary summary() const;
  [[nodiscard]] std::optional<OnlineStep> planned_step() const;

  void call(const OperatorCard& card, const c10::OperatorHandle& op, c10::DispatchKeySet below,
            torch::jit::Stack& stack);
  void make_room(std::int64_t requested_bytes, std::int64_t missing_bytes) override;
  void accessed_by_hand(c10::StorageImpl* storage);
  void backward_ended(int task, bool keeps_graph);

 private:
  struct Made {  // a call that was made
    const OperatorCard& card;
    const c10::OperatorHandle& op;
    c10::DispatchKeySet below;
    CallAnswer answer;
    at::Tensor generator_state;
    torch::jit::Stack arguments;
    std::int64_t end_ns;  // by clock_ns()
    std::int64_t cost_ns;
  };
  struct Fresh {  // a new storage among results
    std::size_t index;
    c10::StorageImpl* storage;
  };

  void call_inside(const OperatorCard& card, const c10::OperatorHandle& op, c10::DispatchKeySet below,
                   torch::jit::Stack& stack);
  void call_elsewhere(const OperatorCard& card, const c10::OperatorHandle& op, c10::DispatchKeySet below,
                      torch::jit::Stack& stack);
  void run(const OperatorCard& card, const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack& stack,
           std::span<const c10::IValue> arguments);
  void bring_back(const Reading& reading);
  [[nodiscard]] CallAnswer prepare(const OperatorCard& card, const c10::OperatorHandle& op,
                                   std::span<const c10::IValue> arguments);
  [[nodiscard]] bool free_readers_of_roots(const at::Tensor& written);
  // The values that it made.
  c10::SmallVector<Value*, 4> note(Made& made, std::span<const c10::IValue> results);
  [[nodiscard]] c10::SmallVector<Fresh, 4> fresh_storages(const Made& made, std::span<const c10::IValue> results) const;
  [[nodiscard]] Ref<Record> record_of(Made& made);
  enum class Contents : std::uint8_t { kKept, kLost };
  void give_up(std::span<const std::uint32_t> which, std::span<const c10::IValue> arguments, Contents contents);
  [[nodiscard]] int watch_backward();
  void check_thrashing();
  void warn_of_thrashing();
  [[nodiscard]] std::string thrashing_message(double times);
  // Makes some room, or says why that is not possible.
  [[nodiscard]] std::string take_away(std::int64_t requested_bytes, std::int64_t missing_bytes);
  [[noreturn]] void refuse(const std::string& message) const;
  [[nodiscard]] std::string full_message(std::int64_t requested_bytes, std::int64_t missing_bytes);
  void set_limit();

  [[nodiscard]] std::int64_t allocated_bytes() const;
  // With the table's lock. By this clock values are old. On CUDA a call returns before it is done, so there it is the
  // time of all calls so far: the same whenever the program runs.
  [[nodiscard]] std::int64_t clock_ns() const { return device_.is_cpu() ? now_ns() : call_ns_; }

  inline static std::atomic<Mode*> active_ = nullptr;

  OnlineOptions options_;
  c10::Device device_;
  std::optional<c10::Stream> stream_;  // of the calls whose results are tracked
  std::int64_t unmetered_bytes_ = 0;
  Table& table_;
  Restorer restorer_;
  Follower follower_;
  CallCosts costs_;
  std::atomic<int> running_ = 0;
  std::int64_t calls_ = 0;
  std::int64_t evictions_ = 0;
  std::int64_t call_ns_ = 0;
  std::int64_t plain_peak_bytes_ = 0;
  std::int64_t step_call_ns_ = 0;  // of this step
  double step_recompute_ns_ = 0;   // before it
  double thrashing_ = 0;           // times the calls themselves, where that is worth a warning
  bool warned_ = false;
  std::set<int> watched_tasks_;  // backward passes whose end will be told
  std::optional<CallHook> hook_;
};

}  // namespace reprise::online
