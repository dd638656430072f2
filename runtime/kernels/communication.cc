#include "runtime/kernels/communication.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/device/arena.h"
#include "runtime/device/meter.h"
#include "runtime/messages.h"
#include "runtime/program/collectives.h"
#include "runtime/program/tensor_memory.h"

namespace reprise {
namespace {

// Notes what a call allocates on its own thread and does not free.
class Allocations final : public RequestGuide {
 public:
  [[nodiscard]] void* take(std::int64_t /*bytes*/) override { return nullptr; }
  void was_served(void* data, std::int64_t bytes) override {
    if (bytes > 0) blocks_.emplace_back(data, number_of_block(data));
  }
  void will_be_freed(void* data) override {
    std::erase_if(blocks_, [&](const auto& block) { return block.first == data; });
  }

  [[nodiscard]] std::vector<std::pair<const void*, std::uint64_t>> take_blocks() { return std::move(blocks_); }

 private:
  std::vector<std::pair<const void*, std::uint64_t>> blocks_;
};

// A thread of gloo lets go of memory a little later than it says that results are there; on a busy machine, a little is
// long. Whatever is still held after two seconds is held for another reason.
template <typename Condition>
void wait_while(const Condition& condition) {
  constexpr std::chrono::seconds kLongest{2};
  const auto end = std::chrono::steady_clock::now() + kLongest;
  while (condition() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

struct Shelf {
  std::mutex mutex;
  std::vector<Communication> abandoned;

  static Shelf& instance() {
    static auto* shelf = new Shelf;  // lives as long as the process, whose threads may still communicate at its end
    return *shelf;
  }
};

}  // namespace

Communication::Communication(const Call& call, std::vector<c10::IValue>& stack)
    : group_(group_of(call)), operands_(tensors_of(stack)) {
  Allocations allocations;
  {
    const GuideScope scope(c10::kCPU, &allocations);
    call.op.callBoxed(stack);
  }
  results_ = tensors_of(stack);
  beside_ = allocations.take_blocks();
  std::erase_if(beside_, [&](const auto& block) {
    return std::ranges::any_of(results_, [&](const at::Tensor& result) {
      return result.defined() && result.is_cpu() && result.storage().data() == block.first;
    });
  });
}

void Communication::wait_until_made() {
  static const auto wait_tensor = c10::Dispatcher::singleton()
                                      .findSchemaOrThrow("_c10d_functional::wait_tensor", "")
                                      .typed<at::Tensor(const at::Tensor&)>();
  for (const at::Tensor& result : results_) {
    if (result.defined()) (void)wait_tensor.call(result);
  }
}

void Communication::wait() {
  wait_until_made();
  operands_.clear();
  for (const at::Tensor& result : results_) {
    if (!result.defined() || !result.is_cpu()) continue;
    constexpr std::size_t kOwners = 2;  // this and another one
    wait_while([&] { return result.storage().use_count() > 1 || result.use_count() > kOwners; });
  }
  for (const auto& [data, number] : beside_) {
    wait_while([&] { return number_of_block(data) == number; });
  }
  results_.clear();
  beside_.clear();
}

void abandon(Communication communication) {
  if (communication.results_.empty()) return;
  Shelf& shelf = Shelf::instance();
  const std::lock_guard lock(shelf.mutex);
  shelf.abandoned.push_back(std::move(communication));
}

void wait_for_abandoned() {
  std::vector<Communication> abandoned;
  {
    Shelf& shelf = Shelf::instance();
    const std::lock_guard lock(shelf.mutex);
    abandoned = std::exchange(shelf.abandoned, {});
  }
  for (Communication& communication : abandoned) {
    try {
      communication.wait();
    } catch (const std::exception& error) {
      log_line(Severity::kInfo, std::string("a collective of a step that was given up has failed: ") + error.what());
    }
  }
}

}  // namespace reprise
