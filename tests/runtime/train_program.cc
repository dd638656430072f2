// train_program net.program.json batches.pt RATE STEPS trained.pt [SHARE]
//
// Trains a program with SGD, one batch in each step, inside a budget of this share of the plain peak at the sizes that
// it was exported with. batches.pt and
// trained.pt are dicts of tensors: "0.1" is the second tensor of the first batch, and "loss 0" is its loss.
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <reprise/torch.h>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/files/program_files.h"

namespace {

using namespace reprise;

struct Options {
  std::string program;
  std::string batches;
  double rate;
  int steps;
  std::string out;
  double share;
};

std::vector<at::Tensor> batch_of(const Options& options, std::size_t size, int step) {
  std::vector<std::string> names;
  for (std::size_t k = 0; k < size; ++k) names.push_back(std::to_string(step) + "." + std::to_string(k));
  return load_state(options.batches, names);
}

// Returns the budget.
std::int64_t plan(TrainingStep& step, double share) {
  const StepSummary plain = step.plan({});
  if (share >= 1) return plain.peak_bytes;
  const auto budget = static_cast<std::int64_t>(share * static_cast<double>(plain.peak_bytes));
  if (step.plan({.budget_bytes = budget, .planning_seconds = 2}).recompute_ns == 0) {
    throw std::runtime_error("nothing is computed again");
  }
  return budget;
}

void train(const Options& options, std::size_t batch_size) {
  TrainingStep step = load_step(options.program);
  const std::int64_t budget = plan(step, options.share);
  std::vector<at::Tensor> losses;
  for (int i = 0; i < options.steps; ++i) {
    losses.push_back(step.run(batch_of(options, batch_size, i)));
    if (step.measured_peak_bytes() != step.summary().peak_bytes) throw std::runtime_error("the peak was not predicted");
    if (options.share < 1 && step.measured_peak_bytes() > budget) throw std::runtime_error("the budget was exceeded");
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : step.parameters()) {
      parameter.sub_(parameter.grad(), options.rate);
      parameter.mutable_grad().reset();
    }
  }
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : step.state()) {
    names.push_back(name);
    tensors.push_back(tensor.detach());
  }
  for (std::size_t i = 0; i < losses.size(); ++i) {
    names.push_back("loss " + std::to_string(i));
    tensors.push_back(losses[i]);
  }
  save_state(options.out, names, tensors);
}

std::size_t batch_size_of(const std::string& program) {
  std::int32_t size = 0;
  for (const std::int32_t owner : load_program(program).step.inputs) size = std::max(size, owner + 1);
  return static_cast<std::size_t>(size);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 6) throw std::runtime_error("usage: train_program PROGRAM BATCHES RATE STEPS OUT [SHARE]");
    at::manual_seed(7);
    train({argv[1], argv[2], std::stod(argv[3]), std::stoi(argv[4]), argv[5], argc > 6 ? std::stod(argv[6]) : 1.0},
          batch_size_of(argv[1]));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_program: %s\n", error.what());
    return 1;
  }
}
