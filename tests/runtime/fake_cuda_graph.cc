// A fake of CUDA graphs for any device: a recording is kept as a function, which is called at every replay. It is used
// to test the code around the graphs: copies, plans and refusals.
#include <gtest/gtest.h>

#include <stdexcept>

#include "runtime/device/cuda_graph.h"
#include "runtime/training.h"

namespace reprise {
namespace {

// What the next recordings do.
std::vector<std::int64_t> pools;    // the bytes of the next pools; the pools after these have none
std::vector<std::int64_t> cleared;  // the same for the workspaces that a recording clears
bool fails = false;
bool out_of_memory = false;

std::int64_t next_of(std::vector<std::int64_t>& list) {
  if (list.empty()) return 0;
  const std::int64_t bytes = list.front();
  list.erase(list.begin());
  return bytes;
}

}  // namespace

struct CudaGraph::State {
  std::vector<std::function<void()>> parts;
  std::int64_t hidden_bytes = next_of(pools);
  std::int64_t cleared_bytes = next_of(cleared);
};

void check_cuda_graphs(c10::Device /*device*/) {}
bool has_cuda_graphs(c10::Device /*device*/) { return true; }
std::string cuda_device_name(c10::Device /*device*/) { return "a fake"; }
CudaGraph::CudaGraph(c10::Device /*device*/) : state_(std::make_unique<State>()) {}
CudaGraph::~CudaGraph() = default;
void CudaGraph::record(std::span<const std::function<void()>> parts) {
  if (fails) throw std::runtime_error("not permitted\nand more");
  TORCH_CHECK_WITH(OutOfMemoryError, !out_of_memory, "no room");
  state_->parts.assign(parts.begin(), parts.end());
}
void CudaGraph::begin() {}
void CudaGraph::replay(std::size_t part) { state_->parts[part](); }
void CudaGraph::end() {}
std::int64_t CudaGraph::pool_bytes() const { return state_->hidden_bytes; }
std::int64_t CudaGraph::hidden_bytes() const { return state_->hidden_bytes; }
std::int64_t CudaGraph::cleared_bytes() const { return state_->cleared_bytes; }

namespace test {
namespace {

struct Recordings : testing::Test {
  ~Recordings() override {
    pools.clear();
    cleared.clear();
    fails = false;
    out_of_memory = false;
  }
  // Runs three steps, of which the third is recorded.
  void run_three() {
    for (int i = 0; i < 3; ++i) step.run(network.batch(i));
  }
  Case network = resnet_case();
  TrainingStep step = capture(network.module, network.loss, network.batch(1));
};

TEST_F(Recordings, ArePlannedLowerUntilTheirPoolFits) {
  const std::int64_t full = step.plan({}).peak_bytes;
  step.plan({.budget_bytes = full * 2, .planning_seconds = 1, .cuda_graphs = CudaGraphs::kOn});
  pools = {full * 21 / 10};
  run_three();
  EXPECT_TRUE(step.summary().as_cuda_graph);
  EXPECT_TRUE(pools.empty());
  EXPECT_GT(step.summary().recompute_ns, 0);
}

TEST_F(Recordings, ThatCannotFitSayWhatWould) {
  const std::int64_t full = step.plan({}).peak_bytes;
  step.plan({.budget_bytes = full * 2, .planning_seconds = 1, .cuda_graphs = CudaGraphs::kOn});
  pools = {full * 4};
  const std::string error = input_error([&] { run_three(); });
  EXPECT_NE(error.find("cannot run as CUDA graphs: no plan fits inside"), std::string::npos) << error;
  EXPECT_NE(error.find("a budget of about "), std::string::npos) << error;
  // The error stays until the step is planned anew.
  EXPECT_EQ(input_error([&] { step.run(network.batch(1)); }), error);
  step.plan({.budget_bytes = full, .planning_seconds = 1});
  run_three();
  EXPECT_FALSE(step.summary().as_cuda_graph);
}

TEST_F(Recordings, LeaveRoomForWorkspacesThatTheFirstTryTook) {
  const std::int64_t full = step.plan({}).peak_bytes;
  step.plan({.budget_bytes = full * 2, .planning_seconds = 1, .cuda_graphs = CudaGraphs::kOn});
  cleared = {full * 2};
  EXPECT_NE(input_error([&] { run_three(); }), "(no error)");
}

TEST_F(Recordings, CountTheirPoolForOtherSteps) {
  step.plan({.cuda_graphs = CudaGraphs::kOn});
  pools = {1'000'000};
  run_three();
  const Case other = in_place_case();
  TrainingStep beside = capture(other.module, other.loss, other.batch(1));
  const std::int64_t with = beside.plan({}).peak_bytes;
  step.plan({});
  EXPECT_EQ(with - beside.plan({}).peak_bytes, 1'000'000);
}

Batch half_of(const Batch& batch) { return {batch[0].slice(0, 0, 2).clone(), batch[1].slice(0, 0, 2).clone()}; }

TEST_F(Recordings, OfAllShapesGiveTheirPoolsBackToANewPlan) {
  const std::int64_t full = step.plan({}).peak_bytes;
  step.plan({.cuda_graphs = CudaGraphs::kOn});
  pools = {1'000'000'000, 2'000'000'000};
  run_three();
  for (int i = 0; i < 3; ++i) step.run(half_of(network.batch(i)));
  EXPECT_TRUE(pools.empty());
  EXPECT_LE(step.plan({.budget_bytes = full, .planning_seconds = 1}).peak_bytes, full);
}

TEST_F(Recordings, ThatMadeWayForAnotherShapeDoNotCount) {
  const std::int64_t full = step.plan({}).peak_bytes;
  step.plan({.budget_bytes = full * 4, .planning_seconds = 1, .cuda_graphs = CudaGraphs::kOn});
  for (int epoch = 0; epoch < 12; ++epoch) {
    run_three();
    EXPECT_TRUE(step.summary().as_cuda_graph) << epoch;
    step.run(half_of(network.batch(0)));
  }
}

TEST_F(Recordings, TryAgainAfterMemoryRanOut) {
  step.plan({.cuda_graphs = CudaGraphs::kOn});
  for (int i = 0; i < 2; ++i) step.run(network.batch(i));
  out_of_memory = true;
  EXPECT_THROW(step.run(network.batch(1)), c10::OutOfMemoryError);
  out_of_memory = false;
  step.run(network.batch(1));
  EXPECT_TRUE(step.summary().as_cuda_graph);
}

TEST_F(Recordings, ThatFailSayWhy) {
  step.plan({.cuda_graphs = CudaGraphs::kOn});
  fails = true;
  const std::string error = input_error([&] { run_three(); });
  EXPECT_NE(error.find("an operator cannot be recorded (not permitted). Turn CUDA graphs off"), std::string::npos)
      << error;
  fails = false;
  step.plan({.cuda_graphs = CudaGraphs::kOn});
  run_three();
  EXPECT_TRUE(step.summary().as_cuda_graph);
}

}  // namespace
}  // namespace test
}  // namespace reprise
