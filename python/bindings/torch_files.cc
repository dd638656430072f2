#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "runtime/files/cache.h"
#include "runtime/files/family_io.h"
#include "runtime/files/program_io.h"
#include "torch_parts.h"

namespace reprise::bindings {
namespace {

using Positions = std::vector<std::int32_t>;
using Names = std::vector<std::string>;

// (tensor of the batch, dimension, size here, least, most) of a size that varies.
using SymbolTuple = std::tuple<std::int32_t, std::int32_t, std::int64_t, std::int64_t, std::optional<std::int64_t>>;
using FamilyTuple = std::tuple<std::shared_ptr<ProgramFamily>, Names, Positions, Positions, std::vector<SymbolTuple>,
                               std::vector<Postfix>>;

std::string format_family_of(std::shared_ptr<ProgramFamily> family, Names state_names, Positions inputs,
                             Positions gradients, const std::vector<SymbolTuple>& symbols,
                             const std::vector<Postfix>& conditions) {
  StepFamily step{.program = std::move(family),
                  .state_names = std::move(state_names),
                  .inputs = std::move(inputs),
                  .gradients = std::move(gradients)};
  for (const auto& [batch, dimension, here, least, most] : symbols) {
    step.symbols.push_back({batch, dimension, here});
    step.limits.ranges.push_back({least, most.value_or(SizeLimits::Range{}.most)});
  }
  for (const Postfix& postfix : conditions) {
    step.limits.conditions.push_back(expression_from(postfix));
    SizeTable::check(step.limits.conditions.back(), symbols.size());
  }
  return format_family(step);
}

FamilyTuple parsed_family(const std::string& text, const std::string& source) {
  StepFamily step = parse_family(text, source);
  std::vector<SymbolTuple> symbols;
  for (std::size_t i = 0; i < step.symbols.size(); ++i) {
    const auto& [batch, dimension, here] = step.symbols[i];
    const auto& [least, most] = step.limits.ranges[i];
    symbols.emplace_back(batch, dimension, here, least,
                         most == SizeLimits::Range{}.most ? std::nullopt : std::optional(most));
  }
  std::vector<Postfix> conditions;
  for (const auto& condition : step.limits.conditions) conditions.push_back(postfix_of(condition));
  return {std::make_shared<ProgramFamily>(*step.program),
          std::move(step.state_names),
          std::move(step.inputs),
          std::move(step.gradients),
          std::move(symbols),
          std::move(conditions)};
}

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
      "format_family", &format_family_of, py::arg("family"), py::arg("state_names"), py::arg("inputs"),
      py::arg("gradients"), py::arg("symbols"), py::arg("conditions"),
      "The same for a step of any size; inputs and gradients: of its tensors. symbols: (tensor of the batch, "
      "dimension, size here, least, most) of each size that varies. conditions: expressions that are not 0 where "
      "it holds.");
  module.def("parse_family", &parsed_family, py::arg("text"), py::arg("source"), "What format_family takes.");
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
