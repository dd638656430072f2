// Which stream waits for which copy, on a device whose streams do no work but know what comes before what.
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "runtime/device/host_link.h"

namespace reprise {

// In the place of device/host_block.cc: nothing can be pinned without CUDA.
HostBlock::HostBlock(c10::Device device, std::int64_t bytes)
    : device_(device), bytes_(bytes), data_(static_cast<std::byte*>(std::malloc(static_cast<std::size_t>(bytes)))) {}
HostBlock::~HostBlock() { std::free(data_); }

namespace test {
namespace {

using Clock = std::map<c10::StreamId, std::int64_t>;  // how far each stream had come

struct Streams {
  c10::StreamId latest = 0;
  c10::StreamId current = 0;
  std::map<c10::StreamId, Clock> clocks{};
};

Streams& streams() {
  static Streams all;
  return all;
}

const c10::Device kDevice(c10::DeviceType::PrivateUse1, 0);

c10::Stream stream_of(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, kDevice, id); }

// An event is the clock of its stream when it was recorded.
class CountingDevice final : public c10::impl::DeviceGuardImplInterface {
 public:
  [[nodiscard]] c10::DeviceType type() const override { return kDevice.type(); }
  [[nodiscard]] c10::Device exchangeDevice(c10::Device /*device*/) const override { return kDevice; }
  [[nodiscard]] c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device /*device*/) const override {}
  void uncheckedSetDevice(c10::Device /*device*/) const noexcept override {}
  [[nodiscard]] c10::Stream getStream(c10::Device /*device*/) const override { return stream_of(streams().current); }
  [[nodiscard]] c10::Stream getNewStream(c10::Device /*device*/, int /*priority*/) const override {
    return stream_of(++streams().latest);
  }
  [[nodiscard]] c10::Stream exchangeStream(c10::Stream stream) const override {
    return stream_of(std::exchange(streams().current, stream.id()));
  }
  [[nodiscard]] c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex /*device*/,
              c10::EventFlag /*flag*/) const override {
    Clock& clock = streams().clocks[stream.id()];
    ++clock[stream.id()];
    destroyEvent(*event, 0);
    *event = new Clock(clock);  // NOLINT: destroyEvent deletes it
  }
  void block(void* event, const c10::Stream& stream) const override {
    Clock& clock = streams().clocks[stream.id()];
    for (const auto& [other, time] : *static_cast<const Clock*>(event)) clock[other] = std::max(clock[other], time);
  }
  void destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<Clock*>(event);  // NOLINT: made by record()
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, CountingDevice)

class HostStreams : public testing::Test {
 protected:
  HostStreams() {
    delay_copies([this] { copied_on_ = streams().current; });
  }
  ~HostStreams() override { delay_copies({}); }

  static c10::Stream new_stream() { return c10::impl::VirtualGuardImpl(kDevice.type()).getNewStream(kDevice); }
  std::unique_ptr<HostLink> link_on(const c10::Stream& stream) {
    const c10::StreamGuard guard(stream);
    return make_host_link(block_, nullptr);
  }

  struct Moment {
    c10::StreamId stream;
    std::int64_t time;
  };
  // The end of the latest copy.
  [[nodiscard]] Moment copied() const { return {copied_on_, streams().clocks[copied_on_][copied_on_]}; }
  static bool waits_for(c10::StreamId stream, Moment moment) {
    return streams().clocks[stream][moment.stream] >= moment.time;
  }
  static bool waits_for(const c10::Stream& stream, Moment moment) { return waits_for(stream.id(), moment); }
  static Moment work_on(const c10::Stream& stream) {
    return {stream.id(), ++streams().clocks[stream.id()][stream.id()]};
  }

  Moment store_on(const c10::Stream& stream, HostLink& link) {
    const c10::StreamGuard guard(stream);
    link.store(kValue, bytes_, 0);
    return copied();
  }
  Moment fetch_on(const c10::Stream& stream, HostLink& link) {
    const c10::StreamGuard guard(stream);
    link.fetch(kValue, bytes_, 0);
    return copied();
  }

  static constexpr ValueId kValue{3};
  std::shared_ptr<HostBlock> block_ = std::make_shared<HostBlock>(kDevice, 64);
  at::Tensor bytes_ = at::zeros({64}, at::kByte);
  c10::StreamId copied_on_ = 0;
  c10::Stream first_ = new_stream();
  c10::Stream second_ = new_stream();
};

TEST_F(HostStreams, AWaitForAStoreHoldsBackTheStreamOfTheBeginningToo) {
  const auto link = link_on(first_);
  const Moment stored = store_on(first_, *link);
  EXPECT_FALSE(waits_for(first_, stored));
  const c10::StreamGuard guard(second_);
  link->wait_for_store(kValue);
  EXPECT_TRUE(waits_for(first_, stored));  // which gets the memory back
  EXPECT_TRUE(waits_for(second_, stored));
}

TEST_F(HostStreams, AWaitForAFetchHoldsBackTheStreamOfTheBeginningToo) {
  const auto link = link_on(first_);
  store_on(first_, *link);
  const Moment fetched = fetch_on(first_, *link);
  const c10::StreamGuard guard(second_);
  link->wait_for_fetch(kValue);
  EXPECT_TRUE(waits_for(first_, fetched));
  EXPECT_TRUE(waits_for(second_, fetched));
}

TEST_F(HostStreams, CopiesFollowWhatBothStreamsDidBefore) {
  const auto link = link_on(first_);
  const Moment made = work_on(first_), read = work_on(second_);
  const Moment stored = store_on(second_, *link);
  EXPECT_TRUE(waits_for(stored.stream, made));
  EXPECT_TRUE(waits_for(stored.stream, read));
  const Moment fetched = fetch_on(second_, *link);
  EXPECT_TRUE(waits_for(fetched.stream, stored));
}

TEST_F(HostStreams, AStepThatEndsOnAnotherStreamFreesNothingUnderItsCopies) {
  auto link = link_on(first_);
  const Moment stored = store_on(first_, *link);
  const Moment fetched = fetch_on(second_, *link);
  const c10::StreamGuard guard(second_);
  link.reset();
  for (const c10::Stream& stream : {first_, second_}) {
    EXPECT_TRUE(waits_for(stream, stored));
    EXPECT_TRUE(waits_for(stream, fetched));
  }
}

TEST_F(HostStreams, TheNextStepOverwritesNothingThatIsStillRead) {
  auto link = link_on(first_);
  store_on(first_, *link);
  const Moment fetched = fetch_on(first_, *link);
  link.reset();
  EXPECT_TRUE(link_on(second_) != nullptr);  // a step without copies in between
  const auto next = link_on(second_);
  EXPECT_TRUE(waits_for(store_on(second_, *next).stream, fetched));
}

}  // namespace
}  // namespace test
}  // namespace reprise
