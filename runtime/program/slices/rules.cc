#include "runtime/program/slices/rules.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "runtime/program/operator_facts.h"
#include "runtime/program/slices/cut.h"

namespace reprise {
namespace {

using Parts = std::vector<Part>;

// A call with its results' common place of the cut.
struct Cutting {
  const Call& call;
  const Geometry& result;  // the first
  std::int64_t units;
  CutPlace place;

  [[nodiscard]] const Geometry* tensor(std::size_t argument) const {
    const TensorUse* found = call.tensor(argument);
    return found == nullptr ? nullptr : &found->geometry;
  }
  [[nodiscard]] bool is_cut_alike(const Geometry& geometry) const { return cut_place(geometry, units) == place; }
};

// Whether the dimensions of an operand up to the cut are those of the result, or are not there at all.
std::optional<Part> broadcast_part(const Cutting& cutting, const Geometry& operand) {
  const std::size_t rank = cutting.result.sizes.size();
  const std::size_t missing = rank - std::min(rank, operand.sizes.size());
  bool same = missing == 0;
  bool absent = true;
  for (std::size_t i = 0; i <= cutting.place.dimension; ++i) {
    const std::int64_t size = i < missing ? 1 : operand.sizes[i - missing];
    same = same && size == cutting.result.sizes[i];
    absent = absent && size == 1;
  }
  if (same && cutting.is_cut_alike(operand)) return Part::kCut;
  return absent ? std::optional(Part::kWhole) : std::nullopt;
}

std::optional<Parts> pointwise(const Cutting& cutting) {
  Parts parts;
  for (std::size_t i = 0; i < cutting.call.arguments.size(); ++i) {
    const Geometry* operand = cutting.tensor(i);
    const auto part = operand == nullptr ? std::optional(Part::kWhole) : broadcast_part(cutting, *operand);
    if (!part) return std::nullopt;
    parts.push_back(*part);
  }
  return parts;
}

// The dimension that an argument names, counted from the front.
std::optional<std::size_t> dimension(const c10::IValue& constant, std::size_t rank) {
  if (!constant.isInt()) return std::nullopt;
  const std::int64_t named = constant.toInt() + (constant.toInt() < 0 ? static_cast<std::int64_t>(rank) : 0);
  return static_cast<std::size_t>(named);
}

// All tensors are cut alike, and the named dimension is not cut.
std::optional<Parts> along_dimension(const Cutting& cutting) {
  const Argument* named = cutting.call.argument("dim");
  Parts parts;
  for (std::size_t i = 0; i < cutting.call.arguments.size(); ++i) {
    const Geometry* operand = cutting.tensor(i);
    if (operand != nullptr) {
      const auto along = dimension(named->constant, operand->sizes.size());
      if (!along || *along <= cutting.place.dimension) return std::nullopt;
      const auto place = cut_place(*operand, cutting.units);
      if (!place || place->dimension != cutting.place.dimension) return std::nullopt;
    }
    parts.push_back(operand == nullptr ? Part::kWhole : Part::kCut);
  }
  return parts;
}

// Sums over dimensions that are not cut; the results keep those before them.
std::optional<Parts> reduction(const Cutting& cutting) {
  const Geometry* operand = cutting.tensor(0);
  const Argument* named = cutting.call.argument("dim");
  if (operand == nullptr || named == nullptr || !named->constant.isIntList()) return std::nullopt;
  if (!cutting.is_cut_alike(*operand) || named->constant.toListRef().empty()) return std::nullopt;
  for (const c10::IValue& one : named->constant.toListRef()) {
    if (*dimension(one, operand->sizes.size()) <= cutting.place.dimension) return std::nullopt;
  }
  Parts parts(cutting.call.arguments.size(), Part::kWhole);
  parts[0] = Part::kCut;
  return parts;
}

std::optional<Parts> first_cut(const Cutting& cutting, std::initializer_list<std::size_t> cut_arguments) {
  Parts parts(cutting.call.arguments.size(), Part::kWhole);
  for (const std::size_t i : cut_arguments) {
    const Geometry* operand = cutting.tensor(i);
    if (operand == nullptr || cutting.place.dimension != 0 || !cutting.is_cut_alike(*operand)) return std::nullopt;
    parts[i] = Part::kCut;
  }
  return parts;
}

std::optional<Parts> mm(const Cutting& cutting) { return first_cut(cutting, {0}); }

std::optional<Parts> addmm(const Cutting& cutting) {
  auto parts = first_cut(cutting, {1});
  const auto added = broadcast_part(cutting, *cutting.tensor(0));
  if (!parts || !added) return std::nullopt;
  parts->front() = *added;
  return parts;
}

std::optional<Parts> bmm(const Cutting& cutting) { return first_cut(cutting, {0, 1}); }

std::optional<Parts> layer_norm(const Cutting& cutting) {
  const Argument* normalised = cutting.call.argument("normalized_shape");
  const Geometry* input = cutting.tensor(0);
  if (input == nullptr || !cutting.is_cut_alike(*input)) return std::nullopt;
  const std::size_t kept = input->sizes.size() - normalised->constant.toListRef().size();
  if (cutting.place.dimension >= kept) return std::nullopt;
  Parts parts(cutting.call.arguments.size(), Part::kWhole);
  parts[0] = Part::kCut;
  return parts;
}

// Row by row, given the number of rows that count. The result's only number in a row depends on the label alone.
std::optional<Parts> nll_loss_backward(const Cutting& cutting) {
  constexpr std::size_t kSeedOfLoss = 0, kLogProbabilities = 1, kLabelOfRow = 2;
  if (cutting.result.sizes.size() != 2) return std::nullopt;
  auto parts = first_cut(cutting, {kLogProbabilities, kLabelOfRow});
  const Argument* reduction = cutting.call.argument("reduction");
  if (!parts || reduction == nullptr || !reduction->constant.isInt()) return std::nullopt;
  if (reduction->constant.toInt() == 0) (*parts)[kSeedOfLoss] = Part::kCut;
  return parts;
}

using Rule = std::optional<Parts> (*)(const Cutting&);
constexpr std::array<std::pair<std::string_view, Rule>, 14> kRules{{
    {"aten::_to_copy", pointwise},
    {"aten::clone", pointwise},
    {"aten::_softmax", along_dimension},
    {"aten::_log_softmax", along_dimension},
    {"aten::_softmax_backward_data", along_dimension},
    {"aten::_log_softmax_backward_data", along_dimension},
    {"aten::gather", along_dimension},
    {"aten::sum", reduction},
    {"aten::mean", reduction},
    {"aten::mm", mm},
    {"aten::addmm", addmm},
    {"aten::bmm", bmm},
    {"aten::native_layer_norm", layer_norm},
    {"aten::nll_loss_backward", nll_loss_backward},
}};

Rule rule_for(const Call& call) {
  const auto found = std::ranges::find(kRules, call.op.operator_name().name, &std::pair<std::string_view, Rule>::first);
  if (found != kRules.end()) return found->second;
  return call.op.hasTag(at::Tag::pointwise) ? pointwise : nullptr;
}

bool is_plain_call(const ProgramOp& op) {
  if (op.kind != ProgramOp::Kind::kCall || op.once || op.mutates || op.first_call || op.expected) return false;
  if (op.generator_state != kNoValue || op.added_seed != kNoValue) return false;
  if (!op.also_reads.empty() || !op.also_makes.empty() || op.outputs.empty()) return false;
  return std::ranges::none_of(op.call->arguments, [](const Argument& argument) {
    return argument.kind == Argument::Kind::kTensorList || argument.kind == Argument::Kind::kOptionalTensorList;
  });
}

// Whether every result is a dense tensor with memory of its own that is cut at the same place.
bool has_cut_results(const ProgramOp& op, std::int64_t units, CutPlace place) {
  if (values_of(op.outputs).size() != op.outputs.size()) return false;
  return std::ranges::all_of(op.outputs, [&](const std::optional<TensorUse>& use) {
    const auto found = cut_place(use->geometry, units);
    return fills_its_memory(use->geometry) && found && found->dimension == place.dimension;
  });
}

}  // namespace

std::optional<std::vector<Part>> sum_rule(const ProgramOp& op, std::int64_t units) {
  if (!is_plain_call(op) || op.call->op.operator_name().name != "aten::mm" || !op.outputs.front()) return std::nullopt;
  const Geometry& result = op.outputs.front()->geometry;
  const bool is_wide = result.dtype == at::kFloat || result.dtype == at::kDouble;
  const Argument& first = op.call->arguments[0];
  const Argument& second = op.call->arguments[1];
  if (!is_wide || !fills_its_memory(result) || first.kind != Argument::Kind::kTensor ||
      second.kind != Argument::Kind::kTensor) {
    return std::nullopt;
  }
  const auto columns = cut_place(transposed(first.tensors.front()->geometry), units);
  const auto rows = cut_place(second.tensors.front()->geometry, units);
  if (!columns || columns != rows || rows->dimension != 0) return std::nullopt;
  return Parts{Part::kCutColumns, Part::kCut};
}

std::optional<std::vector<Part>> slice_rule(const ProgramOp& op, std::int64_t units) {
  if (!is_plain_call(op) || !op.outputs.front()) return std::nullopt;
  const Geometry& result = op.outputs.front()->geometry;
  const auto place = cut_place(result, units);
  const Rule rule = rule_for(*op.call);
  if (!place || rule == nullptr || !has_cut_results(op, units, *place)) return std::nullopt;
  return rule(Cutting{*op.call, result, units, *place});
}

}  // namespace reprise
