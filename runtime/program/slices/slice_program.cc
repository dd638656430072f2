#include "runtime/program/slices/slice_program.h"

#include <c10/core/DispatchKey.h>
#include <c10/core/Layout.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <set>
#include <utility>

#include "reprise/error.h"
#include "runtime/device/meter.h"
#include "runtime/program/operator_facts.h"
#include "runtime/program/passes/in_place.h"
#include "runtime/program/slices/cut.h"
#include "runtime/program/slices/kept_rows.h"
#include "runtime/program/slices/rules.h"

namespace reprise {
namespace {

// The form of an operator that writes its one result to memory it is given, if this device has a kernel for it.
std::optional<c10::OperatorHandle> out_form(const c10::OperatorHandle& op, at::Device device) {
  const auto form = find_operator(op.operator_name().name + ".out");
  const auto key = c10::computeDispatchKey(std::nullopt, std::nullopt, device);
  if (!form || op.schema().returns().size() != 1 || !form->hasKernelForDispatchKey(key)) return std::nullopt;
  const auto& plain = op.schema().arguments();
  const auto& given = form->schema().arguments();
  const auto alike = [](const c10::Argument& a, const c10::Argument& b) {
    return a.name() == b.name() && *a.type() == *b.type();
  };
  const bool fits = given.size() == plain.size() + 1 && given.back().is_out() &&
                    std::equal(plain.begin(), plain.end(), given.begin(), alike);
  return fits ? form : std::nullopt;
}

Argument use_of(TensorUse use) { return {.kind = Argument::Kind::kTensor, .tensors = {std::move(use)}}; }

// A further op for a part of another.
ProgramOp op_beside(const ProgramOp& of, const char* suffix, const char* name, std::vector<Argument> arguments) {
  ProgramOp op;
  op.name = of.name + suffix;
  op.scope = of.scope;
  op.phase = of.phase;
  op.call = Call{find_operator(name).value(), std::move(arguments), of.call->grad_mode};
  return op;
}

class Slicer {
 public:
  Slicer(std::shared_ptr<const Program> whole, const Chain& chain, std::int64_t slices)
      : whole_(*whole), chain_(chain), members_(chain.ops.begin(), chain.ops.end()) {
    result_.whole = std::move(whole);
    result_.chain = chain;
    const std::int64_t per_slice = (chain.units + slices - 1) / slices;
    for (std::int64_t begin = 0; begin < chain.units; begin += per_slice) {
      ranges_.emplace_back(begin, std::min(begin + per_slice, chain.units));
    }
    result_.slices = static_cast<std::int64_t>(ranges_.size());
  }

  std::optional<SlicedProgram> run() {
    made_.name = whole_.name;
    made_.device = whole_.device;
    find_makers();
    make_values();
    for (std::size_t i = 0; i < whole_.ops.size();) {
      const auto end = end_of_segment(i);
      if (!end) return std::nullopt;
      if (*end == i) {
        add(mapped(whole_.ops[i]), op_id(i));
        ++i;
      } else {
        add_segment(i, *end);
        i = *end;
      }
    }
    map_interface();
    write_in_place(made_);
    result_.program = std::make_shared<Program>(std::move(made_));
    return std::move(result_);
  }

 private:
  using Range = std::pair<std::int64_t, std::int64_t>;

  [[nodiscard]] bool is_inside(ValueId value) const { return chain_.inside.contains(value); }
  [[nodiscard]] bool is_end(ValueId value) const { return chain_.ends.contains(value); }
  [[nodiscard]] std::size_t num_slices() const { return ranges_.size(); }

  void find_makers() {
    maker_.resize(whole_.values.size(), nullptr);
    made_as_.resize(whole_.values.size(), nullptr);
    for (const OpId id : chain_.ops) {
      for (const auto& use : whole_.ops[index(id)].outputs) {
        if (!use) continue;
        maker_[index(use->value)] = &whole_.ops[index(id)];
        made_as_[index(use->value)] = &use->geometry;
      }
    }
  }

  [[nodiscard]] bool is_sum(ValueId value) const { return chain_.sums.contains(value); }
  // Whether a sum is added up in a wider type than its own.
  [[nodiscard]] bool is_widened(ValueId value) const {
    return is_sum(value) && c10::isReducedFloatingType(made_as_[index(value)]->dtype);
  }
  // An end as slices write it.
  [[nodiscard]] Geometry added_up_as(ValueId value) const {
    Geometry geometry = *made_as_[index(value)];
    if (is_widened(value)) geometry.dtype = at::kFloat;
    return geometry;
  }

  // Elements of one unit of a value that the chain makes.
  [[nodiscard]] std::int64_t unit(ValueId value) const {
    return c10::multiply_integers(made_as_[index(value)]->sizes) / chain_.units;
  }

  ValueId add_value(ProgramValue value, ValueOrigin origin) {
    made_.values.push_back(value);
    result_.value_origins.push_back(origin);
    return value_id(made_.values.size() - 1);
  }
  ValueId add_part(ValueId whole, Range range) {
    const auto element = static_cast<std::int64_t>(c10::elementSize(made_as_[index(whole)]->dtype));
    const std::int64_t unit_bytes = unit(whole) * element;
    const std::int64_t bytes = (range.second - range.first) * unit_bytes;
    return add_value({.bytes = granted_bytes(whole_.device, bytes)}, {whole, range.first * unit_bytes, bytes});
  }

  void make_values() {
    latest_.resize(whole_.values.size(), kNoValue);
    for (std::size_t i = 0; i < whole_.values.size(); ++i) {
      const ValueId value = value_id(i);
      if (is_inside(value)) {
        for (const Range& range : ranges_) parts_[value].push_back(add_part(value, range));
        continue;
      }
      if (is_end(value)) make_versions(value);
      latest_[i] = add_value(whole_.values[i], {value});
      if (is_end(value) && !is_widened(value)) {
        made_.values.back().overwrites = parts_[value].back();
        parts_[value].push_back(latest_[i]);
      }
    }
    for (std::size_t i = 0; i < whole_.values.size(); ++i) {
      const ValueId old = whole_.values[i].overwrites;
      if (old != kNoValue) made_.values[index(latest_[i])].overwrites = latest_[index(old)];
    }
  }
  // All versions of an end but the last, which is the value itself unless it is rounded to that.
  void make_versions(ValueId value) {
    std::vector<ValueId>& versions = parts_[value];
    const bool widened = is_widened(value);
    const std::int64_t bytes =
        widened ? granted_bytes(whole_.device, extent_bytes(added_up_as(value))) : whole_.values[index(value)].bytes;
    for (std::size_t i = 0; i < num_slices() + (widened ? 1 : 0); ++i) {
      versions.push_back(add_value({.bytes = bytes}, {value}));
      if (i > 0) made_.values[index(versions[i])].overwrites = versions[i - 1];
    }
  }

  // The end of the ops from the first to the last member of a phase, if such a stretch begins here; otherwise `begin`.
  // Nothing if it contains an op that must not change its place.
  [[nodiscard]] std::optional<std::size_t> end_of_segment(std::size_t begin) const {
    if (!members_.contains(op_id(begin))) return begin;
    std::size_t end = begin;
    for (const OpId id : chain_.ops) {
      if (whole_.ops[index(id)].phase == whole_.ops[begin].phase) end = std::max(end, index(id) + 1);
    }
    for (std::size_t i = begin; i < end; ++i) {
      const ProgramOp& op = whole_.ops[i];
      if (op.once || op.mutates || op.kind != ProgramOp::Kind::kCall) return std::nullopt;
    }
    return end;
  }

  // What does not wait for the chain comes before it, and what does, after it.
  void add_segment(std::size_t begin, std::size_t end) {
    std::set<ValueId> of_chain;
    std::vector<OpId> members, later;
    for (std::size_t i = begin; i < end; ++i) {
      const ProgramOp& op = whole_.ops[i];
      const bool waits = std::ranges::any_of(reads(op), [&](ValueId value) { return of_chain.contains(value); });
      const bool is_member = members_.contains(op_id(i));
      if (is_member || waits) {
        for (const ValueId value : makes(op)) of_chain.insert(value);
        (is_member ? members : later).push_back(op_id(i));
      } else {
        add(mapped(op), op_id(i));
      }
    }
    add_slices(members);
    for (const OpId id : later) add(mapped(whole_.ops[index(id)]), id);
  }

  void add_slices(const std::vector<OpId>& members) {
    for (const OpId id : members) {
      for (const auto& use : whole_.ops[index(id)].outputs) {
        if (use && is_end(use->value)) add(buffer(whole_.ops[index(id)], use->value), kNoOp);
      }
    }
    std::vector<OpId> first;
    for (std::size_t slice = 0; slice < num_slices(); ++slice) {
      const std::size_t begin = made_.ops.size();
      for (const OpId id : members) add_part_of(id, slice);
      for (std::size_t i = begin; i < made_.ops.size(); ++i) {
        if (slice == 0) {
          first.push_back(op_id(i));
        } else if (made_.ops[i].call->op != made_.ops[index(first[i - begin])].call->op) {
          first[i - begin] = op_id(i);  // adds to what the first slice has made
        } else if (length(slice) == length(0)) {
          result_.alike.emplace(op_id(i), first[i - begin]);
        }
      }
    }
    for (const OpId id : members) {
      for (const auto& use : whole_.ops[index(id)].outputs) {
        if (use && is_widened(use->value)) add(rounded(whole_.ops[index(id)], *use), id);
      }
    }
  }
  [[nodiscard]] std::int64_t length(std::size_t slice) const { return ranges_[slice].second - ranges_[slice].first; }

  // Memory for an end.
  [[nodiscard]] ProgramOp buffer(const ProgramOp& of, ValueId end) const {
    const Geometry geometry = added_up_as(end);
    ProgramOp op = op_beside(of, "_all", "aten::empty.memory_format",
                             {{.constant = c10::List<std::int64_t>(geometry.sizes)},
                              {.constant = static_cast<std::int64_t>(geometry.dtype)},
                              {.constant = static_cast<std::int64_t>(at::kStrided)},
                              {.constant = whole_.device},
                              {.constant = c10::IValue()},
                              {.constant = c10::IValue()}});
    op.outputs = {TensorUse{parts_.at(end).front(), geometry}};
    return op;
  }

  // A sum in its own type, when all slices are added up.
  [[nodiscard]] ProgramOp rounded(const ProgramOp& of, const TensorUse& end) const {
    ProgramOp op = op_beside(of, "_rounded", "aten::_to_copy",
                             {use_of({parts_.at(end.value).back(), added_up_as(end.value)}),
                              {.constant = static_cast<std::int64_t>(end.geometry.dtype)},
                              {.constant = c10::IValue()},
                              {.constant = c10::IValue()},
                              {.constant = c10::IValue()},
                              {.constant = false},
                              {.constant = c10::IValue()}});
    op.outputs = {mapped(end)};
    return op;
  }

  // The value as one slice of an op sees it.
  [[nodiscard]] TensorUse cut_use(const TensorUse& use, SlicePart how, Phase phase, std::size_t slice) const {
    if (how == SlicePart::kWhole) return mapped(use);
    if (how == SlicePart::kCutColumns) {
      TensorUse turned = cut_use({use.value, transposed(use.geometry)}, SlicePart::kCut, phase, slice);
      turned.geometry = transposed(std::move(turned.geometry));
      return turned;
    }
    const auto [begin, end] = ranges_[slice];
    TensorUse part{use.value, cut(use.geometry, cut_place(use.geometry, chain_.units).value(), begin, end)};
    if (is_inside(use.value)) {
      part.value = parts_.at(use.value)[slice];
      part.geometry.offset = how == SlicePart::kShape ? 0 : part.geometry.offset - begin * unit(use.value);
    } else if (is_end(use.value) && maker_[index(use.value)]->phase == phase) {
      part.value = parts_.at(use.value)[slice + 1];  // the first version that has it
    } else {
      part.value = latest_[index(use.value)];
    }
    return part;
  }

  void add_part_of(OpId id, std::size_t slice) {
    const ProgramOp& whole = whole_.ops[index(id)];
    const SliceRule rule = slice_rule(whole, chain_.units, Sums::kInSlices).value();
    ProgramOp op = whole;
    op.name += "_slice_" + std::to_string(slice);
    for (std::size_t i = 0; i < op.call->arguments.size(); ++i) {
      for (auto& use : op.call->arguments[i].tensors) {
        if (use) use = cut_use(*use, rule.arguments[i], op.phase, slice);
      }
    }
    if (add_directly(op, slice) || write_directly(op, slice)) return add(std::move(op), id);
    std::vector<ProgramOp> copies;
    for (auto& output : op.outputs) {
      if (!output) continue;
      const TensorUse end = *output;
      if (is_sum(end.value)) {
        output->value = add_value({.bytes = whole_.values[index(end.value)].bytes}, {end.value});
        copies.push_back(add_up(op, *output, end, slice));
        continue;
      }
      output = own_part(end, slice);
      if (is_end(end.value)) copies.push_back(copy(op, *output, end, slice));
    }
    add(std::move(op), id);
    for (ProgramOp& written : copies) add(std::move(written), id);
  }

  // Lets a product write the sum in the first slice, and add to it in the others, if this device has a kernel for it.
  bool add_directly(ProgramOp& op, std::size_t slice) const {
    if (op.outputs.size() != 1 || !is_sum(op.outputs.front()->value)) return false;
    if (op.call->op.operator_name().name != "aten::mm") return false;
    const ValueId end = op.outputs.front()->value;
    const bool wide = !is_widened(end);
    const auto form = find_operator(slice == 0 ? (wide ? "aten::mm.out" : "aten::mm.dtype_out")
                                               : (wide ? "aten::addmm_" : "aten::addmm.dtype_out"));
    const auto key = c10::computeDispatchKey(std::nullopt, std::nullopt, whole_.device);
    if (!form || !form->hasKernelForDispatchKey(key)) return false;
    const TensorUse sum{parts_.at(end)[slice], added_up_as(end)};
    std::vector<Argument>& arguments = op.call->arguments;
    op.call->op = *form;
    if (slice > 0) arguments.insert(arguments.begin(), use_of(sum));
    if (!wide) arguments.push_back({.constant = static_cast<std::int64_t>(sum.geometry.dtype)});
    if (slice > 0) arguments.insert(arguments.end(), 2, Argument{.constant = at::Scalar(1)});
    if (slice == 0 || !wide) arguments.push_back(use_of(sum));
    write(op, end, slice);
    return true;
  }

  // The first slice's summand becomes the sum, and those of the others are added to it.
  [[nodiscard]] ProgramOp add_up(const ProgramOp& of, const TensorUse& summand, const TensorUse& end,
                                 std::size_t slice) const {
    const TensorUse sum{parts_.at(end.value)[slice], added_up_as(end.value)};
    ProgramOp op =
        op_beside(of, "_added", slice == 0 ? "aten::copy_" : "aten::add_.Tensor",
                  {use_of(sum), use_of(summand), {.constant = slice == 0 ? c10::IValue(false) : at::Scalar(1)}});
    write(op, end.value, slice);
    return op;
  }

  // A part in memory of its own.
  [[nodiscard]] TensorUse own_part(const TensorUse& output, std::size_t slice) {
    const auto [begin, end] = ranges_[slice];
    TensorUse part{kNoValue, cut(output.geometry, cut_place(output.geometry, chain_.units).value(), begin, end)};
    part.geometry.offset = 0;
    part.value = is_inside(output.value) ? parts_.at(output.value)[slice] : add_part(output.value, ranges_[slice]);
    return part;
  }

  // A part of an end as the version before this slice has it.
  [[nodiscard]] TensorUse written_part(const TensorUse& output, std::size_t slice) const {
    const auto [begin, end] = ranges_[slice];
    const CutPlace place = cut_place(output.geometry, chain_.units).value();
    return {parts_.at(output.value)[slice], cut(output.geometry, place, begin, end)};
  }
  void write(ProgramOp& op, ValueId end, std::size_t slice) const {
    op.mutates = true;
    op.outputs = {std::nullopt};
    op.also_makes = {parts_.at(end)[slice + 1]};
  }

  // Lets the call write to the end itself, if it can.
  bool write_directly(ProgramOp& op, std::size_t slice) const {
    if (op.outputs.size() != 1 || !is_end(op.outputs.front()->value) || is_sum(op.outputs.front()->value)) return false;
    const TensorUse end = *op.outputs.front();
    const std::string& name = op.call->op.operator_name().name;
    if (name == "aten::_to_copy" || name == "aten::clone") {
      op.call->op = find_operator("aten::copy_").value();
      op.call->arguments = {use_of(written_part(end, slice)), op.call->arguments.front(), {.constant = false}};
    } else if (const auto form = out_form(op.call->op, whole_.device)) {
      op.call->op = *form;
      op.call->arguments.push_back(use_of(written_part(end, slice)));
    } else {
      return false;
    }
    write(op, end.value, slice);
    return true;
  }
  [[nodiscard]] ProgramOp copy(const ProgramOp& of, const TensorUse& part, const TensorUse& end,
                               std::size_t slice) const {
    ProgramOp op =
        op_beside(of, "_written", "aten::copy_", {use_of(written_part(end, slice)), use_of(part), {.constant = false}});
    write(op, end.value, slice);
    return op;
  }

  void add(ProgramOp op, OpId origin) {
    made_.ops.push_back(std::move(op));
    result_.op_origins.push_back(origin);
  }

  [[nodiscard]] ValueId mapped(ValueId value) const { return value == kNoValue ? kNoValue : latest_[index(value)]; }
  [[nodiscard]] TensorUse mapped(TensorUse use) const {
    use.value = mapped(use.value);
    return use;
  }
  [[nodiscard]] std::vector<std::optional<TensorUse>> mapped(std::vector<std::optional<TensorUse>> uses) const {
    for (auto& use : uses) {
      if (use) use = mapped(*use);
    }
    return uses;
  }
  [[nodiscard]] ProgramOp mapped(ProgramOp op) const {
    for (auto* call : {&op.call, &op.first_call, &op.in_place_call}) {
      if (!*call) continue;
      for (Argument& argument : (*call)->arguments) argument.tensors = mapped(std::move(argument.tensors));
    }
    op.outputs = mapped(std::move(op.outputs));
    for (ValueId* value : {&op.generator_state, &op.added_seed, &op.added_to}) *value = mapped(*value);
    for (auto* values : {&op.also_reads, &op.also_makes}) {
      for (ValueId& value : *values) value = mapped(value);
    }
    return op;
  }
  void map_interface() {
    made_.inputs = mapped(whole_.inputs);
    made_.num_state = whole_.num_state;
    made_.forward_outputs = mapped(whole_.forward_outputs);
    made_.seeds = mapped(whole_.seeds);
    made_.gradients = mapped(whole_.gradients);
    for (const auto& [value, tensor] : whole_.constants) made_.constants.emplace_back(mapped(value), tensor);
    for (const ValueId value : whole_.new_contents) made_.new_contents.push_back(mapped(value));
  }

  const Program& whole_;
  const Chain& chain_;
  std::set<OpId> members_;
  std::vector<Range> ranges_;
  std::vector<const ProgramOp*> maker_;
  std::vector<const Geometry*> made_as_;
  std::vector<ValueId> latest_;                    // by value of the whole: the one that has all of it
  std::map<ValueId, std::vector<ValueId>> parts_;  // inside: by slice; of an end: its versions
  Program made_;
  SlicedProgram result_;
};

}  // namespace

std::shared_ptr<const Program> prepare_for_slices(const Program& program) {
  auto prepared = std::make_shared<Program>(program);
  for (ProgramOp& op : prepared->ops) {
    if (!op.in_place_call) continue;
    op.in_place_call.reset();
    for (const auto& output : op.outputs) {
      if (output) prepared->values[index(output->value)].overwrites = kNoValue;
    }
  }
  keep_rows(*prepared);
  return prepared;
}

std::optional<SlicedProgram> slice_program(std::shared_ptr<const Program> whole, const Chain& chain,
                                           std::int64_t slices) {
  if (slices < 2 || slices > chain.units) {
    throw InternalError("a chain of " + std::to_string(chain.units) + " units cannot have " + std::to_string(slices) +
                        " slices");
  }
  return Slicer(std::move(whole), chain, slices).run();
}

std::string words_of(const Program& program, const Chain& chain) {
  std::vector<std::string> calls, scopes;
  const auto add = [](std::vector<std::string>& list, std::string text) {
    if (std::ranges::find(list, text) == list.end()) list.push_back(std::move(text));
  };
  for (const OpId id : chain.ops) {
    const ProgramOp& op = program.ops[index(id)];
    add(calls, short_name(op.call->op));
    add(scopes, op.scope.empty() ? "the model itself" : op.scope);
  }
  const auto joined = [](const std::vector<std::string>& list) {
    constexpr std::size_t kMost = 5;
    std::string text;
    for (std::size_t i = 0; i < std::min(list.size(), kMost); ++i) text += (i == 0 ? "" : ", ") + list[i];
    return list.size() > kMost ? text + " and more" : text;
  };
  return joined(calls) + " in " + joined(scopes);
}

}  // namespace reprise
