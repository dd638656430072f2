#include "runtime/program/slices/rules.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "runtime/program/operator_facts.h"
#include "runtime/program/slices/cut.h"

namespace reprise {
namespace {

using Parts = std::vector<SlicePart>;

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
std::optional<SlicePart> broadcast_part(const Cutting& cutting, const Geometry& operand) {
  const std::size_t rank = cutting.result.sizes.size();
  const std::size_t missing = rank - std::min(rank, operand.sizes.size());
  bool same = missing == 0;
  bool absent = true;
  for (std::size_t i = 0; i <= cutting.place.dimension; ++i) {
    const std::int64_t size = i < missing ? 1 : operand.sizes[i - missing];
    same = same && size == cutting.result.sizes[i];
    absent = absent && size == 1;
  }
  if (same && cutting.is_cut_alike(operand)) return SlicePart::kCut;
  return absent ? std::optional(SlicePart::kWhole) : std::nullopt;
}

std::optional<Parts> pointwise(const Cutting& cutting) {
  Parts parts;
  for (std::size_t i = 0; i < cutting.call.arguments.size(); ++i) {
    const Geometry* operand = cutting.tensor(i);
    const auto part = operand == nullptr ? std::optional(SlicePart::kWhole) : broadcast_part(cutting, *operand);
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
    parts.push_back(operand == nullptr ? SlicePart::kWhole : SlicePart::kCut);
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
  Parts parts(cutting.call.arguments.size(), SlicePart::kWhole);
  parts[0] = SlicePart::kCut;
  return parts;
}

std::optional<Parts> first_cut(const Cutting& cutting, std::initializer_list<std::size_t> cut_arguments) {
  Parts parts(cutting.call.arguments.size(), SlicePart::kWhole);
  for (const std::size_t i : cut_arguments) {
    const Geometry* operand = cutting.tensor(i);
    if (operand == nullptr || cutting.place.dimension != 0 || !cutting.is_cut_alike(*operand)) return std::nullopt;
    parts[i] = SlicePart::kCut;
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
  Parts parts(cutting.call.arguments.size(), SlicePart::kWhole);
  parts[0] = SlicePart::kCut;
  return parts;
}

// Row by row, given the number of rows that count. The result's only number in a row depends on the label alone.
std::optional<Parts> nll_loss_backward(const Cutting& cutting) {
  constexpr std::size_t kSeedOfLoss = 0, kLogProbabilities = 1, kLabelOfRow = 2;
  if (cutting.result.sizes.size() != 2) return std::nullopt;
  auto parts = first_cut(cutting, {kLogProbabilities, kLabelOfRow});
  const Argument* reduction = cutting.call.argument("reduction");
  if (!parts || reduction == nullptr || !reduction->constant.isInt()) return std::nullopt;
  if (reduction->constant.toInt() == 0) (*parts)[kSeedOfLoss] = SlicePart::kCut;
  return parts;
}

// Images one by one: convolutions, pooling.
std::optional<Parts> images(const Cutting& cutting) { return first_cut(cutting, {0}); }

std::optional<Parts> pooling_backward(const Cutting& cutting) {
  auto parts = first_cut(cutting, {0, 1});
  const std::size_t last = cutting.call.arguments.size() - 1;
  if (!parts || cutting.tensor(last) == nullptr) return parts;  // Average pooling has no indices.
  if (!cutting.is_cut_alike(*cutting.tensor(last))) return std::nullopt;
  parts->back() = SlicePart::kCut;
  return parts;
}

// The gradient of an input does not need the input itself, whose place may be taken by a stand-in of its shape.
bool is_stand_in(const Geometry& geometry) {
  return std::ranges::all_of(geometry.strides, [](std::int64_t stride) { return stride == 0; });
}

std::optional<Parts> convolution_backward_parts(const Call& call, std::int64_t units) {
  constexpr std::size_t kGradientOfResult = 0, kConvolved = 1;
  const TensorUse* gradient = call.tensor(kGradientOfResult);
  const TensorUse* input = call.tensor(kConvolved);
  if (gradient == nullptr || input == nullptr) return std::nullopt;
  const bool is_shape = is_stand_in(input->geometry);
  const bool fits = gradient->geometry.sizes.front() == units && input->geometry.sizes.front() == units &&
                    cut_place(gradient->geometry, units) && (is_shape || cut_place(input->geometry, units));
  if (!fits) return std::nullopt;
  Parts parts(call.arguments.size(), SlicePart::kWhole);
  parts[kGradientOfResult] = SlicePart::kCut;
  parts[kConvolved] = is_shape ? SlicePart::kShape : SlicePart::kCut;
  return parts;
}

// The gradient of the input alone: those of weight and bias are sums over images.
std::optional<Parts> convolution_backward(const Cutting& cutting) {
  const c10::IValue& mask = cutting.call.arguments.back().constant;
  const bool is_of_input = mask.isBoolList() && mask.toBoolList().vec() == std::vector<bool>{true, false, false};
  if (!is_of_input || cutting.place.dimension != 0) return std::nullopt;
  return convolution_backward_parts(cutting.call, cutting.units);
}

using Rule = std::optional<Parts> (*)(const Cutting&);
constexpr std::array<std::pair<std::string_view, Rule>, 22> kRules{{
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
    {"aten::convolution", images},
    {"aten::convolution_backward", convolution_backward},
    {"aten::max_pool2d_with_indices", images},
    {"aten::max_pool2d_with_indices_backward", pooling_backward},
    {"aten::avg_pool2d", images},
    {"aten::avg_pool2d_backward", pooling_backward},
    {"aten::_adaptive_avg_pool2d", images},
    {"aten::_adaptive_avg_pool2d_backward", pooling_backward},
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

// Whether there are results, and each is a dense tensor with memory of its own that is cut at the same place.
bool has_cut_results(const ProgramOp& op, std::int64_t units, CutPlace place) {
  return std::ranges::all_of(op.outputs, [&](const std::optional<TensorUse>& use) {
    if (!use) return true;
    const auto found = cut_place(use->geometry, units);
    return fills_its_memory(use->geometry) && found && found->dimension == place.dimension;
  });
}

// Each unit of all results depends on that unit alone of what is cut.
std::optional<Parts> independent(const ProgramOp& op, std::int64_t units) {
  const auto first = std::ranges::find_if(op.outputs, [](const auto& use) { return use.has_value(); });
  const Rule rule = rule_for(*op.call);
  if (rule == nullptr || first == op.outputs.end()) return std::nullopt;
  const Geometry& result = (*first)->geometry;
  const auto place = cut_place(result, units);
  if (!place || !has_cut_results(op, units, *place)) return std::nullopt;
  return rule(Cutting{*op.call, result, units, *place});
}

// The product of two matrices over the dimension that is cut.
std::optional<SliceRule> sum_of_products(const Call& call, std::int64_t units) {
  const TensorUse* first = call.tensor(0);
  const TensorUse* second = call.tensor(1);
  if (first == nullptr || second == nullptr) return std::nullopt;
  const auto columns = cut_place(transposed(first->geometry), units);
  const auto rows = cut_place(second->geometry, units);
  if (!columns || columns != rows || rows->dimension != 0) return std::nullopt;
  return SliceRule{{SlicePart::kCutColumns, SlicePart::kCut}, {Made::kSum}};
}

// Over all dimensions up to the one that is cut, and perhaps others.
std::optional<SliceRule> sum_of_rows(const Call& call, std::int64_t units) {
  const TensorUse* operand = call.tensor(0);
  const Argument* named = call.argument("dim");
  if (operand == nullptr || named == nullptr || !named->constant.isIntList()) return std::nullopt;
  const auto place = cut_place(operand->geometry, units);
  if (!place) return std::nullopt;
  std::set<std::size_t> summed;
  for (const c10::IValue& one : named->constant.toListRef()) {
    summed.insert(*dimension(one, operand->geometry.sizes.size()));
  }
  for (std::size_t i = 0; i <= place->dimension; ++i) {
    if (!summed.contains(i)) return std::nullopt;
  }
  SliceRule rule{Parts(call.arguments.size(), SlicePart::kWhole), {Made::kSum}};
  rule.arguments.front() = SlicePart::kCut;
  return rule;
}

std::optional<SliceRule> sum_of_images(const Call& call, std::int64_t units) {
  auto parts = convolution_backward_parts(call, units);
  if (!parts || (*parts)[1] == SlicePart::kShape) return std::nullopt;
  return SliceRule{std::move(*parts), {Made::kUnits, Made::kSum, Made::kSum}};
}

using SumRule = std::optional<SliceRule> (*)(const Call&, std::int64_t);
constexpr std::array<std::pair<std::string_view, SumRule>, 3> kSumRules{{
    {"aten::mm", sum_of_products},
    {"aten::sum", sum_of_rows},
    {"aten::convolution_backward", sum_of_images},
}};

// Some results are sums over units.
std::optional<SliceRule> with_sums(const ProgramOp& op, std::int64_t units) {
  const auto found =
      std::ranges::find(kSumRules, op.call->op.operator_name().name, &std::pair<std::string_view, SumRule>::first);
  auto rule = found == kSumRules.end() ? std::nullopt : found->second(*op.call, units);
  if (!rule) return std::nullopt;
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    if (!op.outputs[i]) continue;
    const Geometry& result = op.outputs[i]->geometry;
    const bool fits =
        rule->results[i] == Made::kUnits ? cut_place(result, units).has_value() : c10::isFloatingType(result.dtype);
    if (!fits || !fills_its_memory(result)) return std::nullopt;
  }
  return rule;
}

}  // namespace

std::optional<SliceRule> slice_rule(const ProgramOp& op, std::int64_t units, Sums sums) {
  if (!is_plain_call(op)) return std::nullopt;
  if (auto parts = independent(op, units)) {
    return SliceRule{std::move(*parts), std::vector<Made>(op.outputs.size(), Made::kUnits)};
  }
  return sums == Sums::kInSlices ? with_sums(op, units) : std::nullopt;
}

std::set<std::string> operators_with_rules(Made made) {
  std::set<std::string> names;
  if (made == Made::kUnits) {
    for (const auto& [name, rule] : kRules) names.emplace(name);
  } else {
    for (const auto& [name, rule] : kSumRules) names.emplace(name);
  }
  return names;
}

}  // namespace reprise
