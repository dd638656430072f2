// Tests what the runtime shares between threads: the meter, the files of costs and plans, the sinks of messages, and
// the thread of a device. Each model trains on a thread of its own.
#include <c10/core/impl/FakeGuardImpl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "fixtures/steps.h"
#include "runtime/device/device_thread.h"
#include "runtime/device/meter.h"
#include "runtime/impatient_step.h"
#include "runtime/kernels/kernel.h"
#include "runtime/messages.h"
#include "runtime/session/plan_book.h"
#include "runtime/training.h"
#include "threads/together.h"

namespace c10::impl {
// A fake accelerator without any hardware. It is registered so that it gets a thread of its own.
C10_REGISTER_GUARD_IMPL(PrivateUse1, FakeGuardImpl<DeviceType::PrivateUse1>);  // NOLINT
}  // namespace c10::impl

namespace reprise::test {
namespace {

constexpr int kThreads = 4;

TEST(RuntimeThreads, TrainModelsOfTheirOwnBitForBit) {
  std::vector<Trained> plain;
  std::vector<Case> networks;
  std::vector<TrainingStep> steps;
  std::vector<std::vector<Batch>> batches(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    const Case alone = in_place_case();
    plain.push_back(train(alone, plainly(alone), sgd));
    networks.push_back(in_place_case());
    steps.push_back(capture(networks.back().module, networks.back().loss, networks.back().batch(0)));
    for (int step = 0; step < kSteps; ++step) batches[static_cast<std::size_t>(i)].push_back(alone.batch(100 + step));
  }
  // The random generator belongs to the whole process, so the batches were drawn before the threads start.
  together(kThreads, [&](int i) {
    const auto at = static_cast<std::size_t>(i);
    const auto optimizer = sgd(networks[at].module->parameters());
    for (int step = 0; step < kSteps; ++step) {
      optimizer->zero_grad();
      const at::Tensor loss = steps[at].run(batches[at][static_cast<std::size_t>(step)]);
      EXPECT_TRUE(same_bits(loss, plain[at].losses[static_cast<std::size_t>(step)])) << "loss " << step;
      optimizer->step();
    }
  });
  for (std::size_t i = 0; i < kThreads; ++i) {
    const auto parameters = networks[i].module->named_parameters();
    for (const auto& [name, tensor] : plain[i].tensors) {
      if (!parameters.contains(name)) continue;
      EXPECT_TRUE(same_bits(parameters[name], tensor)) << name;
    }
  }
}

TEST(RuntimeThreads, SearchForPlansWhileStepsRun) {
  std::vector<std::unique_ptr<ImpatientStep>> steps;
  for (int i = 0; i < kThreads; ++i) steps.push_back(std::make_unique<ImpatientStep>(in_place_case()));
  for (const auto& step : steps) step->options->budget_bytes = step->half();
  std::mutex steps_take_turns;
  together(kThreads, [&](int i) {
    const auto& step = *steps[static_cast<std::size_t>(i)];
    for (int turn = 0; turn < 5; ++turn) {
      {
        const std::lock_guard alone(steps_take_turns);  // What other steps allocate would count in this one.
        step.run();
      }
      if (turn == i) {
        EXPECT_FALSE(step.session->settled()->found.is_provisional);
      }
      if (turn == 3) step.session->drop_plans();
    }
    EXPECT_LE(step.session->current()->peak_bytes(), *step.options->budget_bytes);
  });
}

TEST(RuntimeThreads, CaptureOneAtATime) {
  std::atomic<int> captured = 0;
  std::vector<Case> networks;
  for (int i = 0; i < kThreads; ++i) networks.push_back(in_place_case());
  together(kThreads, [&](int i) {
    const Case& network = networks[static_cast<std::size_t>(i)];
    try {
      (void)capture(network.module, network.loss, {torch::ones({4, 6}), torch::zeros({4}, at::kLong)});
      ++captured;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find("one step after the other"), std::string::npos) << error.what();
    }
  });
  EXPECT_GE(captured, 1);
}

TEST(RuntimeThreads, CountWhatAllOfThemAllocate) {
  const std::int64_t before = read_meter(at::kCPU).allocated_bytes;
  std::vector<at::Tensor> kept(kThreads);
  together(kThreads, [&](int i) {
    for (int turn = 0; turn < 100; ++turn) kept[static_cast<std::size_t>(i)] = at::empty({1000}, at::kByte);
    reset_meter_peak(at::kCPU);
  });
  EXPECT_EQ(read_meter(at::kCPU).allocated_bytes - before, 1000 * kThreads);
  kept.clear();
  EXPECT_EQ(read_meter(at::kCPU).allocated_bytes, before);
}

TEST(RuntimeThreads, FindPlansInOneFile) {
  constexpr const char* kPlanner = "lower-sets-approx";
  const CostedGraph step = residual_block_step();
  const std::int64_t smallest = PlanBook(step.graph, step.costs, kPlanner).smallest_budget_bytes(10);
  together(kThreads, [&](int i) {
    PlanBook book(step.graph, step.costs, kPlanner);
    EXPECT_TRUE(book.find(smallest + i, 10).found());
    EXPECT_FALSE(book.find(smallest - 1 - i, 10).found());
  });
  const auto no_search = [](const Graph&, const Costs&, const SolveOptions&) -> Solution {
    throw std::logic_error("what the threads found is not in the file");
  };
  EXPECT_TRUE(PlanBook(step.graph, step.costs, kPlanner, no_search).find(smallest, 10).found());
}

TEST(RuntimeThreads, SayWhatTheyDo) {
  std::atomic<int> lines = 0;
  std::atomic<int> ends = 0;
  const MessageSinks sinks{
      .log = [&](Severity, const std::string&) { ++lines; },
      .progress = [&](const std::string&, std::size_t, std::size_t total) { ends += total == 0 ? 1 : 0; }};
  set_message_sinks(sinks);
  together(kThreads, [&](int i) {
    if (i == 0) set_message_sinks(sinks);
    log_line(Severity::kInfo, "a line");
    Progress progress("work");
    progress(1, 2);
    declare_repeatable("mine::op" + std::to_string(i));
  });
  set_message_sinks({});
  EXPECT_EQ(lines, kThreads);
  EXPECT_EQ(ends, kThreads);
}

TEST(RuntimeThreads, TakeTurnsOnTheThreadOfADevice) {
  const c10::Device device(c10::kPrivateUse1, 0);
  std::set<std::thread::id> ids;
  int turns = 0;  // It need not be atomic, because the device thread does one piece of work at a time.
  together(kThreads, [&](int) {
    for (int turn = 0; turn < 50; ++turn) {
      on_device_thread(device, [&] {
        ids.insert(std::this_thread::get_id());
        on_device_thread(device, [&] { ++turns; });
      });
    }
    EXPECT_THROW(on_device_thread(device, [] { throw std::runtime_error("from there"); }), std::runtime_error);
  });
  EXPECT_EQ(turns, 50 * kThreads);
  EXPECT_EQ(ids.size(), 1);
  EXPECT_EQ(ids.count(std::this_thread::get_id()), 0);
}

}  // namespace
}  // namespace reprise::test
