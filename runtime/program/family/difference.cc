#include "runtime/program/family/difference.h"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "runtime/program/program_queries.h"

namespace reprise {
namespace {

using Uses = std::vector<std::optional<TensorUse>>;

bool same(const std::optional<TensorUse>& a, const std::optional<TensorUse>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  return a->value == b->value && a->geometry == b->geometry;
}

bool same(const Uses& a, const Uses& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) { return same(x, y); });
}

// Inputs that are not tensors do not count: sizes are among them where a step is traced for any size.
bool same_tensors(Uses a, Uses b) {
  for (Uses* uses : {&a, &b}) std::erase_if(*uses, [](const auto& use) { return !use; });
  return same(a, b);
}

// By their bytes where the memory can be read, because a front end may be tracing operators now.
bool same(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.dtype() != b.dtype() || a.device() != b.device() || a.sizes() != b.sizes()) return false;
  if (!a.is_cpu() || !a.is_contiguous() || !b.is_contiguous()) return at::equal(a, b);
  return a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

bool same(const c10::IValue& a, const c10::IValue& b) {
  if (a.isTensor() && b.isTensor()) return same(a.toTensor(), b.toTensor());
  return a.tagKind() == b.tagKind() && a == b;
}

bool same(const Argument& a, const Argument& b) {
  return a.kind == b.kind && same(a.tensors, b.tensors) &&
         (a.kind != Argument::Kind::kConstant || same(a.constant, b.constant));
}

bool same(const std::optional<Call>& a, const std::optional<Call>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  return a->op == b->op && a->grad_mode == b->grad_mode &&
         std::ranges::equal(a->arguments, b->arguments, [](const auto& x, const auto& y) { return same(x, y); });
}

bool same(const ProgramOp& a, const ProgramOp& b) {
  return a.kind == b.kind && a.phase == b.phase && a.once == b.once && a.workspace_bytes == b.workspace_bytes &&
         same(a.call, b.call) && same(a.first_call, b.first_call) && same(a.in_place_call, b.in_place_call) &&
         same(a.outputs, b.outputs) && a.mutates == b.mutates && a.expected == b.expected &&
         a.generator_state == b.generator_state && a.added_seed == b.added_seed && a.added_to == b.added_to &&
         a.also_reads == b.also_reads && a.also_makes == b.also_makes;
}

bool same(const ProgramValue& a, const ProgramValue& b) {
  return a.bytes == b.bytes && a.residence == b.residence && a.held == b.held && a.overwrites == b.overwrites;
}

}  // namespace

std::optional<std::string> difference(const Program& program, const Program& other) {
  const std::size_t common = std::min(program.ops.size(), other.ops.size());
  for (std::size_t i = 0; i < common; ++i) {
    if (!same(program.ops[i], other.ops[i])) {
      return "op " + std::to_string(i) + ": " + words_of(program.ops[i]) + " against " + words_of(other.ops[i]);
    }
  }
  if (program.ops.size() != other.ops.size()) {
    return std::to_string(program.ops.size()) + " ops against " + std::to_string(other.ops.size());
  }
  if (!std::ranges::equal(program.values, other.values, [](const auto& a, const auto& b) { return same(a, b); })) {
    return "the sizes of values, or what they are written over";
  }
  const auto same_constant = [](const auto& a, const auto& b) {
    return a.first == b.first && same(a.second, b.second);
  };
  const bool same_boundary = same_tensors(program.inputs, other.inputs) && same(program.seeds, other.seeds) &&
                             same(program.forward_outputs, other.forward_outputs) &&
                             same_tensors(program.gradients, other.gradients) &&
                             program.new_contents == other.new_contents &&
                             std::ranges::equal(program.constants, other.constants, same_constant);
  if (!same_boundary) return "what goes in and comes out";
  return std::nullopt;
}

}  // namespace reprise
