#include "runtime/program/family/step_family.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "reprise/error.h"
#include "runtime/program/program_check.h"

namespace reprise {
namespace {

std::string shapes_of(std::span<const at::Tensor> batch) {
  std::string text;
  for (const at::Tensor& tensor : batch) {
    text += text.empty() ? "(" : ", (";
    for (std::int64_t i = 0; tensor.defined() && i < tensor.dim(); ++i) {
      text += (i == 0 ? "" : ", ") + std::to_string(tensor.size(i));
    }
    text += ')';
  }
  return text;
}

bool has_sizes(const at::Tensor& tensor, const std::vector<std::int64_t>& sizes, const SizeTable::Numbers& numbers) {
  return tensor.defined() && tensor.dim() == static_cast<std::int64_t>(sizes.size()) &&
         std::ranges::equal(sizes, tensor.sizes(), {}, numbers);
}

// Whether these are the tensors of a batch at these sizes.
bool is_batch(const StepFamily& family, std::span<const at::Tensor> batch, std::span<const std::int64_t> sizes) {
  const ToldStep& told = family.program->told();
  const SizeTable::Numbers numbers = told.sizes.at(sizes);
  for (std::size_t i = 0; i < family.inputs.size(); ++i) {
    if (family.inputs[i] < 0 || !told.inputs[i]) continue;
    const auto position = static_cast<std::size_t>(family.inputs[i]);
    if (position >= batch.size() || !has_sizes(batch[position], told.inputs[i]->geometry.sizes, numbers)) return false;
  }
  return true;
}

std::optional<std::vector<std::int64_t>> found_sizes(const StepFamily& family, std::span<const at::Tensor> batch) {
  std::vector<std::int64_t> sizes;
  for (const StepFamily::Symbol& symbol : family.symbols) {
    const auto position = static_cast<std::size_t>(symbol.batch);
    if (position >= batch.size() || !batch[position].defined()) return std::nullopt;
    if (symbol.dimension >= batch[position].dim()) return std::nullopt;
    sizes.push_back(batch[position].size(symbol.dimension));
  }
  const bool holds = family.limits.hold_at(sizes) && is_batch(family, batch, sizes);
  return holds ? std::optional(std::move(sizes)) : std::nullopt;
}

}  // namespace

std::vector<std::int64_t> StepFamily::traced_at() const {
  std::vector<std::int64_t> sizes;
  for (const Symbol& symbol : symbols) sizes.push_back(symbol.here);
  return sizes;
}

StepProgram StepFamily::at(std::span<const std::int64_t> sizes) const {
  StepProgram step{.program = std::make_shared<Program>(program->at(sizes)),
                   .state_names = state_names,
                   .inputs = inputs,
                   .gradients = gradients};
  detail::check_program(step, step.program->name);
  return step;
}

std::vector<std::int64_t> StepFamily::sizes_of(std::span<const at::Tensor> batch) const {
  if (auto sizes = found_sizes(*this, batch)) return *std::move(sizes);
  std::string shapes;
  const ToldStep& told = program->told();
  const std::vector<std::string> names = words();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] < 0 || !told.inputs[i]) continue;
    shapes += (shapes.empty() ? "batch[" : ", batch[") + std::to_string(inputs[i]) + "] is (";
    const char* separator = "";
    for (const std::int64_t size : told.inputs[i]->geometry.sizes) {
      const auto expression = SizeTable::position(size);
      shapes += separator +
                (expression ? SizeTable::words(told.sizes.expressions()[*expression], names) : std::to_string(size));
      separator = ", ";
    }
    shapes += ')';
  }
  throw InputError("'" + told.name + "' was exported for other sizes than those of this batch, " + shapes_of(batch) +
                   ". It holds where " + shapes + ", if " + limits.words(names) +
                   ". Export another file with a batch of this size");
}

std::vector<std::string> StepFamily::words() const {
  std::vector<std::string> names;
  for (const Symbol& symbol : symbols) {
    names.push_back("batch[" + std::to_string(symbol.batch) + "].size(" + std::to_string(symbol.dimension) + ")");
  }
  return names;
}

}  // namespace reprise
