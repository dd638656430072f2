// train_program net.program.json batches.pt PLANNER RATE STEPS trained.pt: SGD, a batch each step, planned for the
// smallest budget.
// batches.pt and trained.pt are dicts of tensors: "0.1" is the second tensor of the first batch, "loss 0" its loss.
#include <ATen/Context.h>
#include <ATen/Functions.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "reprise/solve.h"
#include "torch/executor.h"
#include "torch/program_files.h"

namespace {

using namespace reprise;

// The tensors the program is called with, by what they are.
std::vector<at::Tensor> inputs_of(const StepProgram& step, const std::vector<at::Tensor>& state,
                                  const std::vector<at::Tensor>& batch) {
  std::vector<at::Tensor> inputs;
  for (const std::int32_t owner : step.inputs) {
    inputs.push_back(owner < 0 ? state.at(static_cast<std::size_t>(-(owner + 1)))
                               : batch.at(static_cast<std::size_t>(owner)));
  }
  return inputs;
}

struct Options {
  std::string program;
  std::string batches;
  std::string planner;
  double rate;
  int steps;
  std::string out;
};

void train(const Options& options) {
  ProgramFile file = load_program(options.program);
  const StepProgram& step = file.step;
  const Executor executor(step.program, solve(make_graph(*step.program), {.planner = options.planner}).plan);
  std::int32_t batch_size = 0;
  for (const std::int32_t owner : step.inputs) batch_size = std::max(batch_size, owner + 1);
  std::vector<std::string> names = step.state_names;
  std::vector<at::Tensor> losses;
  for (int i = 0; i < options.steps; ++i) {
    std::vector<std::string> wanted;
    for (std::int32_t k = 0; k < batch_size; ++k) wanted.push_back(std::to_string(i) + "." + std::to_string(k));
    StepState state;
    const auto outputs = executor.forward(inputs_of(step, file.state, load_state(options.batches, wanted)), state);
    const auto gradients = executor.backward(std::vector{at::ones_like(outputs[0].value())}, state);
    for (std::size_t k = 0; k < gradients.size(); ++k) {
      if (step.gradients[k] >= 0)
        file.state[static_cast<std::size_t>(step.gradients[k])].sub_(*gradients[k], options.rate);
    }
    names.push_back("loss " + std::to_string(i));
    losses.push_back(*outputs[0]);
  }
  file.state.insert(file.state.end(), losses.begin(), losses.end());
  save_state(options.out, names, file.state);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 7) throw std::runtime_error("usage: train_program PROGRAM BATCHES PLANNER RATE STEPS OUT");
    at::manual_seed(7);
    train({argv[1], argv[2], argv[3], std::stod(argv[4]), std::stoi(argv[5]), argv[6]});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_program: %s\n", error.what());
    return 1;
  }
}
