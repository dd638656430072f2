// Trains a step that Python has exported, inside a budget and without Python. 06_export_gpt2.py exports it, and checks
// what was learned.
#include <reprise/torch.h>
#include <torch/torch.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

// Eight sequences that count upwards from random numbers; there are 64 different tokens.
at::Tensor counting() { return (torch::randint(64, {8, 1}, torch::kLong) + torch::arange(48)) % 64; }

// Returns false if a step took more than the budget.
bool train(const std::string& program, const std::string& trained, std::int64_t budget_bytes) {
  torch::manual_seed(0);
  reprise::TrainingStep step = reprise::load_step(program);  // It also reads gpt2.parameters.pt, which lies beside it.
  const std::int64_t plain_bytes = step.plan({}).peak_bytes;
  if (budget_bytes == 0) budget_bytes = plain_bytes * 7 / 10;
  const reprise::StepSummary planned = step.plan({.budget_bytes = budget_bytes});
  std::printf("%lld bytes without recomputation, %lld planned, budget %lld\n", static_cast<long long>(plain_bytes),
              static_cast<long long>(planned.peak_bytes), static_cast<long long>(budget_bytes));

  bool inside = true;
  torch::optim::AdamW optimizer(step.parameters(), torch::optim::AdamWOptions(3e-3));
  for (int i = 0; i < 30; ++i) {
    optimizer.zero_grad();
    const at::Tensor loss = step.run({counting()});
    optimizer.step();
    inside = inside && step.measured_peak_bytes() <= budget_bytes;
    if (i % 10 == 9) {
      std::printf("step %d: loss %.6f, peak %lld bytes\n", i + 1, loss.item<double>(),
                  static_cast<long long>(step.measured_peak_bytes()));
    }
  }
  step.save(trained);
  return inside;
}

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    std::fprintf(stderr, "usage: 06_train_exported gpt2.program.json TRAINED [BUDGET_BYTES]\n");
    return 2;
  }
  try {
    return train(argv[1], argv[2], argc == 4 ? std::stoll(argv[3]) : 0) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "06_train_exported: %s\n", error.what());
    return 1;
  }
}
