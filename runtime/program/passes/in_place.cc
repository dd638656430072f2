#include "runtime/program/passes/in_place.h"

#include <ATen/core/enum_tag.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/TensorOptions.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "runtime/device/meter.h"

namespace reprise {
namespace {

// Kernels that read a whole row, or all of it that other threads read, before they write any number of it, and that
// write each number where they read it last.
constexpr std::array<std::string_view, 4> kByRows{"aten::_softmax", "aten::_log_softmax",
                                                  "aten::_softmax_backward_data", "aten::_log_softmax_backward_data"};

// An operator that computes the same and writes the result to memory it is given: to an additional argument, or to the
// first.
struct Form {
  c10::OperatorHandle op;
  bool takes_out = false;
};

// The operators that have such a form; each is looked up once.
class Forms {
 public:
  explicit Forms(at::Device device) : key_(c10::computeDispatchKey(std::nullopt, std::nullopt, device)) {
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
      overloads_[name.name].push_back(name.overload_name);
    }
  }

  const std::optional<Form>& of(const c10::OperatorHandle& op) {
    const auto [found, is_new] = forms_.try_emplace({op.operator_name().name, op.operator_name().overload_name});
    if (is_new && (op.hasTag(at::Tag::pointwise) || std::ranges::count(kByRows, op.operator_name().name) != 0)) {
      found->second = find(op);
    }
    return found->second;
  }

 private:
  // Only if the device has a kernel of its own: kernels that are generated for all devices make a copy.
  [[nodiscard]] std::optional<c10::OperatorHandle> with_kernel(const std::string& name,
                                                               const std::string& overload) const {
    const auto op = c10::Dispatcher::singleton().findSchema({name, overload});
    return op && op->hasKernelForDispatchKey(key_) ? op : std::nullopt;
  }

  [[nodiscard]] std::optional<Form> find(const c10::OperatorHandle& op) const {
    const auto& [name, overload] = op.operator_name();
    const auto& arguments = op.schema().arguments();
    for (const std::string& other : overloads_.at(name)) {
      const auto form = with_kernel(name, other);
      if (!form || form->schema().arguments().size() != arguments.size() + 1) continue;
      const auto& more = form->schema().arguments();
      const auto alike = [](const c10::Argument& a, const c10::Argument& b) {
        return a.name() == b.name() && *a.type() == *b.type();
      };
      if (more.back().is_out() && std::equal(arguments.begin(), arguments.end(), more.begin(), alike)) {
        return Form{*form, /*takes_out=*/true};
      }
    }
    const auto form = overloads_.contains(name + "_") ? with_kernel(name + "_", overload) : std::nullopt;
    return form ? std::optional(Form{*form}) : std::nullopt;
  }

  c10::DispatchKey key_;
  std::map<std::string, std::vector<std::string>> overloads_;
  std::map<std::pair<std::string, std::string>, std::optional<Form>> forms_;
};

// Whether the result has the operand's size and place in memory, which nobody else owns.
bool may_overwrite(const Program& program, const ProgramOp& op, const TensorUse& use) {
  const TensorUse& output = *op.outputs.front();
  const ProgramValue& value = program.values[index(use.value)];
  if (value.held || is_resident(program, use.value) || use.geometry != output.geometry) return false;
  if (value.bytes != program.values[index(output.value)].bytes) return false;
  if (value.bytes != granted_bytes(program.device, extent_bytes(use.geometry))) return false;
  bool is_seen_otherwise = false;
  for_each_use(*op.call, [&](const TensorUse& other) {
    is_seen_otherwise |= other.value == use.value && other.geometry != use.geometry;
  });
  return !is_seen_otherwise;
}

bool is_candidate(const ProgramOp& op) {
  return op.kind == ProgramOp::Kind::kCall && !op.mutates && !op.first_call && op.generator_state == kNoValue;
}

// Whether the result has just the memory that the operand has alone, which nobody else owns.
bool may_take_over(const Program& program, const ProgramOp& op, const TensorUse& operand, const TensorUse& output) {
  const ProgramValue& value = program.values[index(operand.value)];
  if (value.held || is_resident(program, operand.value)) return false;
  if (operand.geometry.offset != 0 || output.geometry.offset != 0) return false;
  std::size_t uses = 0;
  for_each_use(*op.call, [&](const TensorUse& use) { uses += use.value == operand.value ? 1 : 0; });
  return uses == 1 && value.bytes == program.values[index(output.value)].bytes;
}

// Lets results of a generated kernel lie over operands that the call names for them.
void write_kernel_in_place(Program& program, ProgramOp& op, const std::vector<std::size_t>& to_come) {
  const Argument& over = *op.call->argument("over");
  const std::vector<std::int64_t> possible = over.constant.toIntVector();
  const auto& reads = op.call->argument("reads")->tensors;
  const auto readers = [&](std::int64_t read) { return to_come[index(reads.at(read)->value)]; };
  std::map<std::int64_t, std::int64_t> chosen;  // by result
  std::set<std::int64_t> taken;
  for (std::size_t i = 0; i + 1 < possible.size(); i += 2) {
    const std::int64_t result = possible[i];
    const std::int64_t read = possible[i + 1];
    if (!may_take_over(program, op, *reads.at(read), op.outputs.at(result).value()) || taken.contains(read)) continue;
    const auto [found, is_new] = chosen.try_emplace(result, read);
    if (!is_new && readers(read) >= readers(found->second)) continue;
    taken.erase(std::exchange(found->second, read));
    taken.insert(read);
  }
  if (chosen.empty()) return;
  Call call = *op.call;
  std::vector<std::int64_t> pairs;
  for (const auto& [result, read] : chosen) {
    pairs.insert(pairs.end(), {result, read});
    program.values[index(op.outputs[result]->value)].overwrites = reads[read]->value;
  }
  call.arguments[static_cast<std::size_t>(&over - op.call->arguments.data())].constant = pairs;
  call.arguments.back().constant = true;  // `in_place`
  op.in_place_call = std::move(call);
}

}  // namespace

void write_in_place(Program& program) {
  Forms forms(program.device);
  std::vector<std::size_t> to_come(program.values.size(), 0);  // readers after the op
  for (const ProgramOp& op : program.ops) {
    for (const ValueId value : reads(op)) ++to_come[index(value)];
  }
  for (ProgramOp& op : program.ops) {
    for (const ValueId value : reads(op)) --to_come[index(value)];
    if (!is_candidate(op)) continue;
    if (op.call->op.operator_name().name == kLaunch) write_kernel_in_place(program, op, to_come);
    if (op.outputs.size() != 1 || !op.outputs.front()) continue;
    const auto& form = forms.of(op.call->op);
    const Argument* over = nullptr;
    for (std::size_t i = 0; form && i < (form->takes_out ? op.call->arguments.size() : 1); ++i) {
      const Argument& argument = op.call->arguments[i];
      if (argument.kind != Argument::Kind::kTensor || !may_overwrite(program, op, *argument.tensors.front())) continue;
      const auto readers = [&](const Argument& of) { return to_come[index(of.tensors.front()->value)]; };
      if (over == nullptr || readers(argument) < readers(*over)) over = &argument;
    }
    if (over == nullptr) continue;
    program.values[index(op.outputs.front()->value)].overwrites = over->tensors.front()->value;
    Call call{form->op, op.call->arguments, op.call->grad_mode};
    if (form->takes_out) call.arguments.push_back(*over);
    op.in_place_call = std::move(call);
  }
}

}  // namespace reprise
