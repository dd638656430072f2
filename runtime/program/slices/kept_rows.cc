#include "runtime/program/slices/kept_rows.h"

#include <utility>

#include "runtime/device/meter.h"
#include "runtime/program/slices/cut.h"
#include "runtime/program/tensor_memory.h"

namespace reprise {
namespace {

constexpr std::int64_t kIgnored = -100;
constexpr std::size_t kPickedRows = 0, kRowLabels = 1, kClassWeights = 2, kIgnoredLabel = 4;

bool picks_from_rows(const ProgramOp& op) {
  if (op.kind != ProgramOp::Kind::kCall || op.call->op.operator_name().name != "aten::nll_loss_forward") return false;
  const TensorUse* rows = op.call->tensor(kPickedRows);
  const TensorUse* labels = op.call->tensor(kRowLabels);
  if (rows == nullptr || labels == nullptr || op.call->tensor(kClassWeights) != nullptr || op.once) return false;
  return rows->geometry.sizes.size() == 2 && rows->geometry.sizes[0] > 0 && rows->geometry.sizes[1] > 1 &&
         labels->geometry.sizes.size() == 1 && fills_its_memory(labels->geometry) &&
         labels->geometry.dtype == at::kLong && op.call->arguments[kIgnoredLabel].constant.isInt();
}

class Picking {
 public:
  Picking(Program& program, std::vector<ProgramOp>& ops) : program_(program), ops_(ops) {}

  void add(ProgramOp loss) {
    const TensorUse labels = *loss.call->tensor(kRowLabels);
    const std::int64_t rows = labels.geometry.sizes.front();
    const at::Scalar ignored = loss.call->arguments[kIgnoredLabel].constant.toInt();
    const Geometry flags{.dtype = at::kBool, .sizes = {rows}, .strides = {1}};
    const Geometry numbers{.dtype = at::kLong, .sizes = {rows}, .strides = {1}};
    const TensorUse is_ignored = call(loss, "_ignored", "aten::eq.Scalar", {use(labels), {.constant = ignored}}, flags);
    TensorUse safe = call(loss, "_labels", "aten::masked_fill.Scalar",
                          {use(labels), use(is_ignored), {.constant = at::Scalar(0)}}, numbers);
    const TensorUse column =
        call(loss, "_column", "aten::mul.Tensor", {use(is_ignored), {.constant = wrapped_number(kIgnored)}}, numbers);
    safe.geometry = {.dtype = at::kLong, .sizes = {rows, 1}, .strides = {1, 1}};
    const Geometry picked{
        .dtype = loss.call->tensor(kPickedRows)->geometry.dtype, .sizes = {rows, 1}, .strides = {1, 1}};
    const TensorUse kept = call(
        loss, "_kept", "aten::gather",
        {loss.call->arguments[kPickedRows], {.constant = std::int64_t{1}}, use(safe), {.constant = false}}, picked);
    loss.call->arguments[kPickedRows] = use(kept);
    loss.call->arguments[kRowLabels] = use(column);
    loss.call->arguments[kIgnoredLabel] = {.constant = kIgnored};
    ops_.push_back(std::move(loss));
  }

 private:
  static Argument use(TensorUse of) { return {.kind = Argument::Kind::kTensor, .tensors = {std::move(of)}}; }

  TensorUse call(const ProgramOp& loss, const char* suffix, const char* name, std::vector<Argument> arguments,
                 const Geometry& geometry) {
    program_.values.push_back({.bytes = granted_bytes(program_.device, extent_bytes(geometry))});
    TensorUse made{value_id(program_.values.size() - 1), geometry};
    ProgramOp op;
    op.name = loss.name + suffix;
    op.scope = loss.scope;
    op.phase = loss.phase;
    op.call = Call{find_operator(name).value(), std::move(arguments), loss.call->grad_mode};
    op.outputs = {made};
    ops_.push_back(std::move(op));
    return made;
  }

  Program& program_;
  std::vector<ProgramOp>& ops_;
};

}  // namespace

std::size_t keep_rows(Program& program) {
  std::size_t found = 0;
  std::vector<ProgramOp> ops;
  Picking picking(program, ops);
  for (ProgramOp& op : program.ops) {
    if (picks_from_rows(op)) {
      ++found;
      picking.add(std::move(op));
    } else {
      ops.push_back(std::move(op));
    }
  }
  program.ops = std::move(ops);
  return found;
}

}  // namespace reprise
