// In the place of device/host_link.cc: copies within the CPU's memory that happen as late as they may. A copy to the
// host is made when somebody waits for it, and what is fetched is filled with ones until somebody does. A missing wait
// therefore gives wrong numbers every time, and not only where a link is slow.
#include <ATen/ops/empty.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "reprise/error.h"
#include "runtime/device/host_link.h"

namespace reprise {
namespace {

class LateLink final : public HostLink {
 public:
  explicit LateLink(std::shared_ptr<HostBlock> block) : block_(std::move(block)) {}

  void store(ValueId value, const at::Tensor& bytes, std::int64_t offset) override {
    if (!storing_.emplace(value, Copy{bytes, offset}).second) throw InternalError("a value is stored twice");
  }
  void fetch(ValueId value, const at::Tensor& bytes, std::int64_t offset) override {
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
  std::map<ValueId, Copy> storing_;
  std::set<ValueId> stored_;
  std::map<ValueId, Copy> coming_;
};

}  // namespace

HostBlock::HostBlock(c10::Device device, std::int64_t bytes)
    : device_(device), bytes_(bytes), data_(static_cast<std::byte*>(std::malloc(static_cast<std::size_t>(bytes)))) {}
HostBlock::~HostBlock() { std::free(data_); }

bool has_host_link(c10::Device /*device*/) { return true; }
std::optional<CopyTimes> CopyLog::read() const { return std::nullopt; }
std::unique_ptr<HostLink> make_host_link(std::shared_ptr<HostBlock> block, std::shared_ptr<CopyLog> /*log*/) {
  return std::make_unique<LateLink>(std::move(block));
}
Link measure_link(c10::Device /*device*/) {
  return {.down_bytes_per_s = 40'000'000'000, .up_bytes_per_s = 40'000'000'000, .latency_ns = 100};
}
void delay_copies(std::function<void()> /*delay*/) {}

}  // namespace reprise
