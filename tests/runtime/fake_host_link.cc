// In the place of device/host_link.cc: copies within the CPU's memory that happen as late as they may. A copy to the
// host is made when somebody waits for it, and what is fetched is filled with ones until somebody does. A missing wait
// therefore gives wrong numbers every time, and not only where a link is slow.
#include "runtime/fake_host_link.h"

#include <ATen/ops/empty.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "reprise/error.h"
#include "runtime/device/host_link.h"

namespace reprise {

std::optional<test::FakeRates>& test::fake_rates() {
  static std::optional<FakeRates> rates;
  return rates;
}

namespace {

int repeats = 1;

std::map<const CopyLog*, CopyTimes>& timed() {
  static std::map<const CopyLog*, CopyTimes> times;
  return times;
}

class LateLink final : public HostLink {
 public:
  LateLink(std::shared_ptr<HostBlock> block, std::shared_ptr<CopyLog> log)
      : block_(std::move(block)), log_(std::move(log)) {
    if (log_ != nullptr) timed()[log_.get()] = {};
  }

  void store(ValueId value, const at::Tensor& bytes, std::int64_t offset) override {
    if (log_ != nullptr) timed()[log_.get()].down_bytes += bytes.numel();
    if (!storing_.emplace(value, Copy{bytes, offset}).second) throw InternalError("a value is stored twice");
  }
  void fetch(ValueId value, const at::Tensor& bytes, std::int64_t offset) override {
    if (log_ != nullptr) timed()[log_.get()].up_bytes += bytes.numel();
    if (!stored_.contains(value)) throw InternalError("a value was let go before its copy was done");
    std::memset(bytes.data_ptr(), 0xff, static_cast<std::size_t>(bytes.nbytes()));
    coming_.insert_or_assign(value, Copy{bytes, offset});
  }
  void wait_for_store(ValueId value) override {
    const auto copy = storing_.extract(value);
    if (copy.empty()) throw InternalError("a wait for a copy that nobody began");
    std::memcpy(at(copy.mapped()), copy.mapped().bytes.data_ptr(), size(copy.mapped()));
    stored_.insert(value);
  }
  void wait_for_fetch(ValueId value) override {
    const auto copy = coming_.extract(value);
    if (copy.empty()) throw InternalError("a wait for a copy that nobody began");
    std::memcpy(copy.mapped().bytes.data_ptr(), at(copy.mapped()), size(copy.mapped()));
  }
  void wait_for_all() override {
    while (!storing_.empty()) wait_for_store(storing_.begin()->first);
    while (!coming_.empty()) wait_for_fetch(coming_.begin()->first);
  }

 private:
  struct Copy {
    at::Tensor bytes;
    std::int64_t offset;
  };
  [[nodiscard]] std::byte* at(const Copy& copy) const {
    if (copy.offset + copy.bytes.numel() > block_->bytes()) throw InternalError("a copy outside of the host's block");
    return block_->data() + copy.offset;
  }
  static std::size_t size(const Copy& copy) { return static_cast<std::size_t>(copy.bytes.numel()); }

  std::shared_ptr<HostBlock> block_;
  std::shared_ptr<CopyLog> log_;
  std::map<ValueId, Copy> storing_;
  std::set<ValueId> stored_;
  std::map<ValueId, Copy> coming_;
};

}  // namespace

HostBlock::HostBlock(c10::Device device, std::int64_t bytes)
    : device_(device), bytes_(bytes), data_(static_cast<std::byte*>(std::malloc(static_cast<std::size_t>(bytes)))) {}
HostBlock::~HostBlock() { std::free(data_); }

bool has_host_link(c10::Device /*device*/) { return true; }
std::optional<CopyTimes> CopyLog::read() const {
  const auto rates = test::fake_rates();
  if (!rates || !timed().contains(this)) return std::nullopt;
  CopyTimes times = timed().at(this);
  const auto ns = [](std::int64_t bytes, std::int64_t rate) {
    return std::llround(1e9 * repeats * static_cast<double>(bytes) / static_cast<double>(rate));
  };
  times.down_ns = ns(times.down_bytes, rates->down_bytes_per_s);
  times.up_ns = ns(times.up_bytes, rates->up_bytes_per_s);
  times.wait_ns = rates->wait_ns;
  return times;
}
std::unique_ptr<HostLink> make_host_link(std::shared_ptr<HostBlock> block, std::shared_ptr<CopyLog> log) {
  return std::make_unique<LateLink>(std::move(block), std::move(log));
}
Link measure_link(c10::Device /*device*/) {
  return {.down_bytes_per_s = test::kMeasuredRate, .up_bytes_per_s = test::kMeasuredRate, .latency_ns = 100};
}
void delay_copies(std::function<void()> /*delay*/) {}
void repeat_copies(int times) { repeats = times; }

}  // namespace reprise
