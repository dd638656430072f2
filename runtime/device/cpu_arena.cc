// Memory of an arena on the CPU: pages of the system, in large pages where they are worth it.
//
// PyTorch's allocator maps and unmaps every large tensor, and each page of it faults when it is first written. Pages
// of a block fault once, at the first step that uses them.
#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>

#include "runtime/device/arena.h"
#include "runtime/device/meter.h"

namespace reprise {
namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kLargePage = std::int64_t{2} << 20;
constexpr std::int64_t kLargeBlock = 2 * kLargePage;  // from here on, large pages are worth their rounding

class Pages final : public ArenaMemory {
 public:
  // The mapping has one large page more than the block, so that the block can begin at one.
  explicit Pages(std::int64_t bytes) : mapped_bytes_(static_cast<std::size_t>(bytes + kLargePage)) {
    mapped_ = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK_WITH(OutOfMemoryError, mapped_ != MAP_FAILED, "the system has no ", bytes, " bytes for an arena");
    auto* begin = static_cast<std::byte*>(mapped_);
    const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(begin) % kLargePage);
    base_ = begin + (past == 0 ? 0 : kLargePage - past);
    if (bytes >= kLargeBlock) madvise(base_, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
    count_block(base_, bytes);
  }
  ~Pages() override {
    count_block(base_, 0);
    munmap(mapped_, mapped_bytes_);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  [[nodiscard]] std::byte* base() const override { return base_; }
  void poison(std::byte* data, std::int64_t bytes) override {
    std::memset(data, 0xff, static_cast<std::size_t>(bytes));
  }

  void count_as(std::int64_t bytes) override { count_block(base_, bytes); }
  // Only whole pages can go.
  void drop(std::int64_t begin, std::int64_t end) override {
    begin = (begin + kPage - 1) / kPage * kPage;
    end = end / kPage * kPage;
    if (begin < end) madvise(base_ + begin, static_cast<std::size_t>(end - begin), MADV_DONTNEED);
  }

 private:
  std::size_t mapped_bytes_;
  void* mapped_ = nullptr;
  std::byte* base_ = nullptr;
};

}  // namespace

std::unique_ptr<ArenaMemory> cpu_arena_memory(std::int64_t bytes) { return std::make_unique<Pages>(bytes); }

}  // namespace reprise
