#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "runtime/files/cache.h"
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
  module.def(
      "read_cache",
      [](const std::string& name) -> std::optional<py::bytes> {
        const std::optional<std::string> text = read_cache(name);
        return text ? std::optional<py::bytes>(*text) : std::nullopt;
      },
      py::arg("name"), "What a file of the cache holds, or None if there is no such file.");
  module.def(
      "write_cache",
      [](const std::string& name, const py::bytes& text) { return write_cache(name, std::string_view(text)); },
      py::arg("name"), py::arg("text"), "Writes a file of the cache. Returns whether that was possible.");
  module.def("refuse_cache", &refuse_cache, py::arg("name"), py::arg("why"),
             "Warns of a file that can be read but makes no sense.");
}

}  // namespace reprise::bindings
