#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "runtime/files/program_io.h"
#include "torch_parts.h"

namespace reprise::bindings {
namespace {

using Positions = std::vector<std::int32_t>;
using Names = std::vector<std::string>;

}  // namespace

void bind_files(py::module_& module) {
  module.def(
      "format_program",
      [](std::shared_ptr<Program> program, Names state_names, Positions inputs, Positions gradients) {
        return format_program({std::move(program), std::move(state_names), std::move(inputs), std::move(gradients)});
      },
      py::arg("program"), py::arg("state_names"), py::arg("inputs"), py::arg("gradients"),
      "The text of a program file. inputs: position in the batch, or -(1 + position in state_names), of each; "
      "gradients: position in state_names of each, or -1.");
  module.def(
      "parse_program",
      [](const std::string& text, const std::string& source) {
        StepProgram step = parse_program(text, source);
        return std::tuple(std::move(step.program), std::move(step.state_names), std::move(step.inputs),
                          std::move(step.gradients));
      },
      py::arg("text"), py::arg("source"), "What format_program takes, out of the text of a program file.");
}

}  // namespace reprise::bindings
