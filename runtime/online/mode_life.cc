// How the online mode begins and ends.

#include <exception>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "reprise/error.h"
#include "reprise/torch/errors.h"
#include "runtime/messages.h"
#include "runtime/online/arguments.h"
#include "runtime/online/mode.h"

namespace reprise::online {
namespace {

c10::Device checked(c10::Device device) {
  if (!device.is_cpu() && !device.is_cuda()) {
    throw InputError("the online mode works on the CPU and on CUDA, not on " + device.str());
  }
  if (!online_is_available(device.type())) {
    throw Unsupported(
        "the online mode needs a build with CUDA's headers to work on " + device.str() +
        ": build Reprise where libtorch has CUDA and cuda_runtime.h is found, or capture the step instead");
  }
  return numbered(device);
}

}  // namespace

Mode::Mode(OnlineOptions options)
    : options_(std::move(options)),
      device_(checked(options_.device)),
      stream_(current_stream(device_)),
      table_(Table::instance()),
      restorer_(table_, device_, [this](const std::string& message) { refuse(message); }),
      follower_(table_, restorer_, device_, options_.budget_bytes, options_.planning_seconds),
      costs_(device_) {
  if (options_.budget_bytes <= 0) throw InputError("the budget of the online mode must be positive");
  std::unordered_set<const void*> seen;
  for (const at::Tensor& tensor : options_.older) {
    c10::StorageImpl* storage = storage_of(tensor);
    if (storage == nullptr || !device_.is_cpu() || !tensor.is_cpu() || !seen.insert(storage).second) continue;
    const void* data = storage->_mutable_data_ptr_no_checks().get();
    if (!is_metered(data)) unmetered_bytes_ += static_cast<std::int64_t>(storage->nbytes());
  }
  options_.older.clear();
  split_blocks_exactly(device_);
  hook_.emplace([this](const c10::OperatorHandle& known) -> CallHook::Handler {
    const std::shared_ptr<const OperatorCard> found = card_of(known, device_.type());
    if (found == nullptr) return nullptr;
    return [this, card = found](const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack& stack) {
      call(*card, op, below, stack);
    };
  });
  set_by_hand([](c10::StorageImpl* storage) {
    if (Mode* mode = active_) mode->accessed_by_hand(storage);
  });
  reset_meter_peak(device_);
  set_limit();
  active_ = this;
}

Mode::~Mode() {
  try {
    end();
  } catch (const std::exception& error) {
    log_line(Severity::kWarning, std::string("the online mode could not restore everything: ") + error.what());
  }
}

void Mode::set_limit() { set_memory_limit(device_, options_.budget_bytes - unmetered_bytes_, this); }

std::int64_t Mode::allocated_bytes() const { return read_meter(device_).allocated_bytes + unmetered_bytes_; }

void Mode::set_budget(std::int64_t bytes) {
  options_.budget_bytes = bytes;
  set_limit();
  follower_.set_budget(bytes);
}

void Mode::end() {
  if (active_ != this) return;
  const auto restore_all = [this] {
    std::vector<Ref<Value>> held;
    const Table::Lock lock(table_);
    for (const Cell* cell : table_.cells()) held.push_back(cell->value);
    return held;
  };
  warn_of_thrashing();
  std::string above;
  try {
    restorer_.make_final(restore_all());
  } catch (const std::exception& error) {
    above = error.what();
  }
  set_memory_limit(device_, 0, nullptr);
  if (!above.empty()) {
    log_line(
        Severity::kWarning,
        "the online mode ends while the program holds more than the budget allows; it is restored above the budget");
    restorer_.make_final(restore_all());
  }
  active_ = nullptr;
  hook_.reset();
}

}  // namespace reprise::online
