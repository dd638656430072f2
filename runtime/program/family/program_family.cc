#include "runtime/program/family/program_family.h"

#include <utility>

#include "reprise/error.h"
#include "runtime/program/tensor_memory.h"

namespace reprise {

using Origin = ToldStep::Origin;

ProgramFamily::ProgramFamily(std::string name, at::Device device, std::size_t num_symbols)
    : told_{.name = std::move(name), .device = device, .num_symbols = num_symbols} {}

ValueId ProgramFamily::name(ToldStep::Memory memory) {
  told_.memory.push_back(memory);
  return value_id(told_.memory.size() - 1);
}

ValueId ProgramFamily::resident(std::int64_t bytes, at::Device device) {
  return name({Origin::kResident, bytes, device});
}
ValueId ProgramFamily::made(std::int64_t bytes, at::Device device) { return name({Origin::kMade, bytes, device}); }
ValueId ProgramFamily::seed(std::int64_t bytes, at::Device device) { return name({Origin::kSeed, bytes, device}); }

void ProgramFamily::constant(ValueId memory, const at::Tensor& tensor) { told_.constants.emplace_back(memory, tensor); }
void ProgramFamily::input(std::optional<TensorUse> use) { told_.inputs.push_back(std::move(use)); }
void ProgramFamily::call(ProgramBuilder::SeenCall seen) {
  (is_backward_ ? told_.backward : told_.forward).push_back(std::move(seen));
}
void ProgramFamily::end_forward(Uses outputs, Uses seeds) {
  told_.outputs = std::move(outputs);
  told_.seeds = std::move(seeds);
  is_backward_ = true;
}
void ProgramFamily::finish(Gradients gradients, std::optional<bool> split) {
  told_.gradients = std::move(gradients);
  told_.split = split;
}

// Tells a builder what the family was told, with the numbers at one size.
class ProgramFamily::Member {
 public:
  Member(const ToldStep& told, std::span<const std::int64_t> symbols)
      : told_(told),
        numbers_(told.sizes.at(symbols)),
        builder_(told.name, told.device),
        values_(told.memory.size(), kNoValue) {}

  Program build() && {
    tell_all(Origin::kResident);
    for (const auto& [memory, tensor] : told_.constants) builder_.constant(values_[index(memory)], tensor);
    for (const auto& use : told_.inputs) builder_.input(here(use));
    for (const auto& seen : told_.forward) tell(seen);
    tell_all(Origin::kSeed);
    builder_.end_forward(here(told_.outputs), here(told_.seeds));
    for (const auto& seen : told_.backward) tell(seen);
    Gradients gradients = told_.gradients;
    for (auto& gradient : gradients) {
      if (!gradient) continue;
      gradient->use = here(gradient->use);
      if (gradient->variable) put_numbers(*gradient->variable);
    }
    return builder_.finish(gradients, told_.split);
  }

 private:
  void tell_all(Origin origin) {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (told_.memory[i].origin == origin) values_[i] = added(told_.memory[i]);
    }
  }
  void tell(const ProgramBuilder::SeenCall& seen) {
    ProgramBuilder::SeenCall call = seen;
    put_numbers(call.call);
    if (call.first_call) put_numbers(*call.first_call);
    if (is_whole_slice(call)) {
      values_[index(seen.results.front()->value)] = call.call.arguments.front().tensors.front()->value;
      return;
    }
    // Memory that a call makes appears in the program together with the call.
    for (const auto& use : seen.results) {
      if (use && values_[index(use->value)] == kNoValue) {
        values_[index(use->value)] = added(told_.memory[index(use->value)]);
      }
    }
    call.results = here(seen.results);
    builder_.call(std::move(call));
  }

  [[nodiscard]] ValueId added(const ToldStep::Memory& memory) {
    const std::int64_t bytes = numbers_(memory.bytes);
    if (bytes < 0) throw InputError(told_.name + " has memory of " + std::to_string(bytes) + " bytes at these sizes");
    switch (memory.origin) {
      case Origin::kResident:
        return builder_.resident(bytes, memory.device);
      case Origin::kMade:
        return builder_.made(bytes, memory.device);
      case Origin::kSeed:
        return builder_.seed(bytes, memory.device);
    }
    throw InternalError("memory of no known origin");
  }

  [[nodiscard]] static bool is_whole_slice(const ProgramBuilder::SeenCall& seen) {
    const Call& call = seen.call;
    if (call.op.operator_name().name != "aten::slice_backward") return false;
    const auto integer = [&](const char* name) { return call.argument(name)->constant.toInt(); };
    const std::vector<std::int64_t> whole = call.argument("input_sizes")->constant.toIntVector();
    const std::int64_t dim =
        integer("dim") < 0 ? integer("dim") + static_cast<std::int64_t>(whole.size()) : integer("dim");
    if (dim < 0 || static_cast<std::size_t>(dim) >= whole.size()) return false;
    return integer("start") == 0 && integer("end") >= whole[static_cast<std::size_t>(dim)] && integer("step") == 1;
  }

  // -- The same parts with the numbers at this size.

  void put_numbers(Geometry& geometry) const {
    for (std::int64_t& size : geometry.sizes) size = numbers_(size);
    for (std::int64_t& stride : geometry.strides) stride = numbers_(stride);
    geometry.offset = numbers_(geometry.offset);
    if (is_possible(geometry)) return;
    throw InputError(told_.name + " has a tensor " + to_string(geometry) + " at these sizes, which is not possible");
  }
  [[nodiscard]] TensorUse here(TensorUse use) const {
    use.value = values_[index(use.value)];
    put_numbers(use.geometry);
    return use;
  }
  [[nodiscard]] std::optional<TensorUse> here(const std::optional<TensorUse>& use) const {
    return use ? std::optional(here(*use)) : std::nullopt;
  }
  [[nodiscard]] Uses here(Uses uses) const {
    for (auto& use : uses) use = here(use);
    return uses;
  }
  void put_numbers(Call& call) const {
    for (Argument& argument : call.arguments) {
      argument.tensors = here(std::move(argument.tensors));
      if (argument.kind == Argument::Kind::kConstant) put_numbers(argument.constant);
    }
  }
  void put_numbers(c10::IValue& constant) const {
    if (constant.isInt()) {
      constant = numbers_(constant.toInt());
    } else if (constant.isIntList()) {
      std::vector<std::int64_t> list = constant.toIntVector();
      for (std::int64_t& number : list) number = numbers_(number);
      constant = std::move(list);
    } else if (constant.isList()) {
      c10::List<c10::IValue> list = constant.toList().copy();
      for (std::size_t i = 0; i < list.size(); ++i) {
        c10::IValue element = list.get(i);
        put_numbers(element);
        list.set(i, std::move(element));
      }
      constant = std::move(list);
    } else if (constant.isTensor() && is_wrapped_integer(constant.toTensor())) {
      constant = wrapped_number(numbers_(*constant.toTensor().const_data_ptr<std::int64_t>()));
    }
  }
  [[nodiscard]] static bool is_wrapped_integer(const at::Tensor& tensor) {
    return tensor.unsafeGetTensorImpl()->is_wrapped_number() && tensor.scalar_type() == at::kLong;
  }

  const ToldStep& told_;
  SizeTable::Numbers numbers_;
  ProgramBuilder builder_;
  std::vector<ValueId> values_;  // by the family's name of the memory
};

Program ProgramFamily::at(std::span<const std::int64_t> symbols) const {
  if (symbols.size() != told_.num_symbols) {
    throw InputError("this family has " + std::to_string(told_.num_symbols) + " sizes");
  }
  return Member(told_, symbols).build();
}

}  // namespace reprise
