// Files of a training step: the program (*.program.json) and its parameters and buffers (*.parameters.pt), which
// reprise.export writes side by side. torch.load and torch.save can read and write the parameters too.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/program/family/step_family.h"
#include "runtime/program/step_program.h"

namespace reprise {

struct ProgramFile {
  StepProgram step;                    // at the sizes that it was exported with
  std::optional<StepFamily> family{};  // if it is a step of any size
  std::vector<at::Tensor> state{};     // by position in step.state_names
};

// Reads net.program.json, and the parameters from net.parameters.pt beside it or from another file, such as that of an
// earlier run. Throws InputError if a file cannot be read, or if the parameters are not those of the program.
[[nodiscard]] ProgramFile load_program(const std::filesystem::path& program);
[[nodiscard]] ProgramFile load_program(const std::filesystem::path& program, const std::filesystem::path& parameters);

// "net.program.json" -> "net.parameters.pt"
[[nodiscard]] std::filesystem::path parameters_path(const std::filesystem::path& program);
// "net.program.json" -> "net.kernels", the folder with the generated kernels of a fused step
[[nodiscard]] std::filesystem::path kernels_path(const std::filesystem::path& program);

// A dict of tensors by name, for torch.load(path, weights_only=True) and load_state. The file is written completely or
// not at all.
void save_state(const std::filesystem::path& path, std::span<const std::string> names,
                std::span<const at::Tensor> tensors);
// The tensors of these names, in this order; there may be more in the file.
[[nodiscard]] std::vector<at::Tensor> load_state(const std::filesystem::path& path, std::span<const std::string> names);

}  // namespace reprise
