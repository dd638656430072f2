#include "runtime/program/program.h"

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

#include "reprise/graph_builder.h"
#include "runtime/program/captured_step.h"

namespace reprise {
namespace {

// A list without repetitions, in the order of first occurrence. The set is used for long lists.
class UniqueList {
 public:
  UniqueList() = default;
  explicit UniqueList(std::vector<ValueId> values) : list_(std::move(values)) {}

  void add(ValueId value) {
    if (value == kNoValue) return;
    if (list_.size() >= kShort && seen_.empty()) seen_.insert(list_.begin(), list_.end());
    const bool is_new = seen_.empty() ? std::ranges::find(list_, value) == list_.end() : seen_.insert(value).second;
    if (is_new) list_.push_back(value);
  }
  [[nodiscard]] std::vector<ValueId> take() { return std::move(list_); }

 private:
  static constexpr std::size_t kShort = 32;
  std::vector<ValueId> list_;
  std::unordered_set<ValueId> seen_;
};

// Streams are not used, because they must not cross into libtorch, which may bring a C++ library of its own.
std::string list_text(at::IntArrayRef numbers) {
  std::string text = "[";
  for (const std::int64_t number : numbers) text += std::to_string(number) + ' ';
  return text + ']';
}

}  // namespace

Geometry geometry_of(const at::Tensor& tensor) {
  return {.dtype = tensor.scalar_type(),
          .sizes = tensor.sizes().vec(),
          .strides = tensor.strides().vec(),
          .offset = tensor.storage_offset(),
          .conj = tensor.is_conj(),
          .neg = tensor.is_neg()};
}

std::int64_t extent_bytes(const Geometry& geometry) {
  std::int64_t last = geometry.offset;
  for (std::size_t i = 0; i < geometry.sizes.size(); ++i) {
    if (geometry.sizes[i] == 0) return 0;
    last += (geometry.sizes[i] - 1) * geometry.strides[i];
  }
  return (last + 1) * static_cast<std::int64_t>(c10::elementSize(geometry.dtype));
}

bool is_possible(const Geometry& geometry) {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 54;
  std::int64_t last = geometry.offset;
  std::int64_t count = 1;
  bool possible = last >= 0 && last < kMostElements;
  for (std::size_t i = 0; i < geometry.sizes.size() && possible; ++i) {
    const std::int64_t steps = std::max<std::int64_t>(geometry.sizes[i], 1) - 1;
    std::int64_t reach = 0;
    const bool is_large = __builtin_mul_overflow(steps, geometry.strides[i], &reach) ||
                          __builtin_add_overflow(last, reach, &last) ||
                          __builtin_mul_overflow(count, std::max<std::int64_t>(geometry.sizes[i], 1), &count);
    possible = !is_large && geometry.sizes[i] >= 0 && geometry.strides[i] >= 0 && last < kMostElements &&
               count < kMostElements;
  }
  return possible;
}

std::string to_string(const Geometry& geometry) {
  std::string text = std::string(c10::toString(geometry.dtype)) + list_text(geometry.sizes) + " strides " +
                     list_text(geometry.strides);
  if (geometry.offset != 0) text += " offset " + std::to_string(geometry.offset);
  if (geometry.conj) text += " conj";
  if (geometry.neg) text += " neg";
  return text;
}

const Argument* Call::argument(std::string_view name) const {
  const auto& schema = op.schema().arguments();
  const auto found = std::ranges::find(schema, name, &c10::Argument::name);
  return found == schema.end() ? nullptr : &arguments[static_cast<std::size_t>(found - schema.begin())];
}

std::optional<c10::OperatorHandle> find_operator(const std::string& name) {
  const std::size_t dot = name.find('.');
  return c10::Dispatcher::singleton().findSchema(
      {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
}

OpId Program::caller_op() const {
  const auto found = std::ranges::find(ops, ProgramOp::Kind::kCaller, &ProgramOp::kind);
  return found == ops.end() ? kNoOp : op_id(static_cast<std::size_t>(found - ops.begin()));
}

std::vector<ValueId> reads(const ProgramOp& op) {
  UniqueList list;
  if (op.call) {
    for_each_use(*op.call, [&](const TensorUse& use) { list.add(use.value); });
  }
  list.add(op.generator_state);
  for (const ValueId value : op.also_reads) list.add(value);
  return list.take();
}

std::vector<ValueId> makes(const ProgramOp& op) {
  UniqueList list(values_of(op.outputs));
  for (const ValueId value : op.also_makes) list.add(value);
  return list.take();
}

std::vector<ValueId> values_of(const std::vector<std::optional<TensorUse>>& uses) {
  UniqueList list;
  for (const auto& use : uses) {
    if (use) list.add(use->value);
  }
  return list.take();
}

std::set<ValueId> read_values(const Program& program) {
  std::set<ValueId> values;
  for (const ProgramOp& op : program.ops) {
    for (const ValueId value : reads(op)) values.insert(value);
  }
  return values;
}

std::set<ValueId> overwritten_values(const Program& program) {
  std::set<ValueId> values;
  for (const ProgramValue& value : program.values) {
    if (value.overwrites != kNoValue) values.insert(value.overwrites);
  }
  return values;
}

bool is_resident(const Program& program, ValueId value) {
  while (program.values[index(value)].overwrites != kNoValue) value = program.values[index(value)].overwrites;
  return program.values[index(value)].residence == Residence::kResident;
}

std::vector<std::size_t> optional_seeds(const Program& program) {
  std::set<ValueId> needed;
  for (const ProgramOp& op : program.ops) {
    for (const ValueId value : reads(op)) {
      if (value != op.added_seed) needed.insert(value);
    }
  }
  for (const auto& gradient : program.gradients) {
    if (gradient) needed.insert(gradient->value);
  }
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < program.seeds.size(); ++i) {
    if (!program.seeds[i] || !needed.contains(program.seeds[i]->value)) positions.push_back(i);
  }
  return positions;
}

Graph make_graph(const Program& program, RandomCalls random) {
  GraphBuilder builder(program.name);
  for (const ProgramValue& value : program.values) {
    const ValueId id = value.residence == Residence::kPlanned    ? builder.value(value.bytes)
                       : value.residence == Residence::kArriving ? builder.arriving(value.bytes)
                                                                 : builder.resident(value.bytes);
    if (value.held) builder.hold(id);
  }
  for (std::size_t i = 0; i < program.values.size(); ++i) {  // What a start makes comes after what its wait makes.
    if (program.values[i].overwrites != kNoValue) builder.overwrite(value_id(i), program.values[i].overwrites);
  }
  std::map<std::string, ScopeId> scopes;
  for (const ProgramOp& op : program.ops) {
    ScopeId scope = kNoScope;
    if (!op.scope.empty()) {
      const auto [entry, is_new] = scopes.try_emplace(op.scope, kNoScope);
      if (is_new) entry->second = builder.scope(op.scope);
      scope = entry->second;
    }
    builder.op({.name = op.name,
                .scope = scope,
                .phase = op.phase,
                .workspace_bytes = op.workspace_bytes,
                .once = op.once || (random == RandomCalls::kOnce && op.generator_state != kNoValue),
                .stream = op.stream,
                .inputs = reads(op),
                .outputs = makes(op)});
  }
  UniqueList outputs(program.new_contents);
  for (const auto* uses : {&program.forward_outputs, &program.gradients}) {
    for (const ValueId value : values_of(*uses)) outputs.add(value);
  }
  for (const ValueId value : outputs.take()) builder.output(value);
  return builder.build().graph;
}

bool lies_as(const Program& program, OpId op, const ResultLayouts& found) {
  const auto& expected = program.ops[index(op)].outputs;
  for (std::size_t i = 0; i < std::min(expected.size(), found.size()); ++i) {
    if (!expected[i] || !found[i]) continue;
    if (found[i]->geometry != expected[i]->geometry) return false;
    const bool counts = found[i]->device == program.device.type();
    if (program.values[index(expected[i]->value)].bytes != (counts ? found[i]->storage_bytes : 0)) return false;
  }
  return true;
}

}  // namespace reprise
