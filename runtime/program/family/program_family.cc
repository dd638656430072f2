#include "runtime/program/family/program_family.h"

#include <utility>

#include "reprise/error.h"
#include "runtime/program/tensor_memory.h"

namespace reprise {

ProgramFamily::ProgramFamily(std::string name, at::Device device, std::size_t num_symbols)
    : name_(std::move(name)), device_(device), num_symbols_(num_symbols) {}

ValueId ProgramFamily::name(Memory memory) {
  memory_.push_back(memory);
  return value_id(memory_.size() - 1);
}

ValueId ProgramFamily::resident(std::int64_t bytes, at::Device device) {
  const ValueId memory = name({Origin::kResident, bytes, device});
  told_.emplace_back(memory);
  return memory;
}

// It appears in the program together with the call that makes it.
ValueId ProgramFamily::made(std::int64_t bytes, at::Device device) { return name({Origin::kMade, bytes, device}); }

ValueId ProgramFamily::seed(std::int64_t bytes, at::Device device) {
  const ValueId memory = name({Origin::kSeed, bytes, device});
  told_.emplace_back(memory);
  return memory;
}

void ProgramFamily::constant(ValueId memory, const at::Tensor& tensor) { told_.emplace_back(Constant{memory, tensor}); }
void ProgramFamily::input(std::optional<TensorUse> use) { told_.emplace_back(Input{std::move(use)}); }
void ProgramFamily::call(ProgramBuilder::SeenCall seen) { told_.emplace_back(std::move(seen)); }
void ProgramFamily::end_forward(Uses outputs, Uses seeds) {
  told_.emplace_back(EndOfForward{std::move(outputs), std::move(seeds)});
}
void ProgramFamily::finish(Gradients gradients, std::optional<bool> split) {
  gradients_ = std::move(gradients);
  split_ = split;
}

// Tells a builder what the family was told, with the numbers at one size.
class ProgramFamily::Member {
 public:
  Member(const ProgramFamily& family, std::span<const std::int64_t> symbols)
      : family_(family),
        numbers_(family.sizes_.at(symbols)),
        builder_(family.name_, family.device_),
        values_(family.memory_.size(), kNoValue) {}

  Program build() && {
    for (const auto& told : family_.told_) {
      std::visit([&](const auto& part) { tell(part); }, told);
    }
    Gradients gradients = family_.gradients_;
    for (auto& gradient : gradients) {
      if (!gradient) continue;
      gradient->use = here(gradient->use);
      if (gradient->variable) put_numbers(*gradient->variable);
    }
    return builder_.finish(gradients, family_.split_);
  }

 private:
  void tell(ValueId memory) { values_[index(memory)] = made(memory); }
  void tell(const Constant& constant) { builder_.constant(values_[index(constant.memory)], constant.tensor); }
  void tell(const Input& input) { builder_.input(here(input.use)); }
  void tell(const EndOfForward& end) { builder_.end_forward(here(end.outputs), here(end.seeds)); }
  void tell(const ProgramBuilder::SeenCall& seen) {
    ProgramBuilder::SeenCall call = seen;
    put_numbers(call.call);
    if (call.first_call) put_numbers(*call.first_call);
    if (is_whole_slice(call)) {
      values_[index(seen.results.front()->value)] = call.call.arguments.front().tensors.front()->value;
      return;
    }
    for (const auto& use : seen.results) {
      if (use && values_[index(use->value)] == kNoValue) tell(use->value);
    }
    call.results = here(seen.results);
    builder_.call(std::move(call));
  }

  [[nodiscard]] ValueId made(ValueId memory) {
    const auto& [origin, bytes, device] = family_.memory_[index(memory)];
    switch (origin) {
      case Origin::kResident:
        return builder_.resident(numbers_(bytes), device);
      case Origin::kMade:
        return builder_.made(numbers_(bytes), device);
      case Origin::kSeed:
        return builder_.seed(numbers_(bytes), device);
    }
    throw InternalError("memory of no known origin");
  }

  [[nodiscard]] static bool is_whole_slice(const ProgramBuilder::SeenCall& seen) {
    const Call& call = seen.call;
    if (short_name(call.op) != "slice_backward") return false;
    const auto integer = [&](const char* name) { return call.argument(name)->constant.toInt(); };
    const std::vector<std::int64_t> whole = call.argument("input_sizes")->constant.toIntVector();
    const std::int64_t dim =
        integer("dim") < 0 ? integer("dim") + static_cast<std::int64_t>(whole.size()) : integer("dim");
    return integer("start") == 0 && integer("end") >= whole[static_cast<std::size_t>(dim)] && integer("step") == 1;
  }

  // -- The same parts with the numbers at this size.

  void put_numbers(Geometry& geometry) const {
    for (std::int64_t& size : geometry.sizes) size = numbers_(size);
    for (std::int64_t& stride : geometry.strides) stride = numbers_(stride);
    geometry.offset = numbers_(geometry.offset);
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

  const ProgramFamily& family_;
  SizeTable::Numbers numbers_;
  ProgramBuilder builder_;
  std::vector<ValueId> values_;  // by the family's name of the memory
};

Program ProgramFamily::at(std::span<const std::int64_t> symbols) const {
  if (symbols.size() != num_symbols_) throw InputError("this family has " + std::to_string(num_symbols_) + " sizes");
  return Member(*this, symbols).build();
}

}  // namespace reprise
