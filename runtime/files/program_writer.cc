// Training steps to text: docs/formats.md. Geometries and scopes are written once and named by their position.
#include <algorithm>
#include <array>

#include "io/json_writer.h"
#include "reprise/error.h"
#include "runtime/files/part_writer.h"
#include "runtime/files/program_io.h"
#include "runtime/files/program_text.h"

namespace reprise {
namespace {

using detail::append_json;
using detail::append_list;
using detail::JsonObject;
using detail::name_of;

using Uses = std::vector<std::optional<TensorUse>>;

class Writer {
 public:
  explicit Writer(const StepProgram& step) : step_(step), program_(*step.program) {}

  std::string text() {
    {
      JsonObject file(out_);
      write_boundary(file);
      parts_.constants(file, program_.constants, program_.name);
      detail::append_lines(file.line("ops"), program_.ops, [&](const ProgramOp& op) { write_op(op); });
      out_ += '\n';
    }
    std::string text = head();
    text.back() = ',';  // instead of ending the object
    return text + out_.substr(1) + '\n';
  }

 private:
  [[nodiscard]] std::string head() const;
  void write_values(std::string& out) const;
  void write_boundary(JsonObject& file);
  void write_op(const ProgramOp& op);

  const StepProgram& step_;
  const Program& program_;
  std::string out_;
  detail::PartWriter parts_{out_};
};

std::string Writer::head() const {
  std::string out;
  {
    JsonObject file(out);
    file.line("format", detail::kProgramFormat);
    const bool streams = std::ranges::any_of(program_.ops, [](const ProgramOp& op) { return op.stream != 0; });
    file.field("version", streams ? detail::kProgramVersionWithStreams : detail::kProgramVersion);
    file.line("torch", detail::torch_version());
    file.field("device", program_.device.str());
    file.line("name", program_.name);
    file.line("state", step_.state_names);
    file.line("scopes", parts_.scopes());
    detail::append_lines(file.line("geometries"), parts_.geometries(),
                         [&](const std::string& geometry) { out += geometry; });
    write_values(file.line("values"));
  }
  return out;
}

void Writer::write_values(std::string& out) const {
  JsonObject object(out);
  const auto& values = program_.values;
  append_list(object.line("bytes"), values, [&](const ProgramValue& value) { append_json(out, value.bytes); });
  const auto those = [&](auto belongs) {
    std::vector<ValueId> ids;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (belongs(values[i])) ids.push_back(value_id(i));
    }
    return ids;
  };
  object.line("resident", those([](const ProgramValue& value) { return value.residence == Residence::kResident; }));
  object.line("arriving", those([](const ProgramValue& value) { return value.residence == Residence::kArriving; }));
  object.line("held", those([](const ProgramValue& value) { return value.held; }));
  append_list(object.line("overwrites"), those([](const ProgramValue& value) { return value.overwrites != kNoValue; }),
              [&](ValueId value) {
                append_json(out, std::array{value, values[index(value)].overwrites});
              });
}

void Writer::write_boundary(JsonObject& file) {
  const auto write_named = [&](std::string_view key, const Uses& uses, auto write_owner) {
    std::size_t i = 0;
    detail::append_lines(file.line(key), uses, [&](const std::optional<TensorUse>& use) {
      JsonObject object(out_);
      object.key("use");
      parts_.use(use);
      write_owner(object, i++);
    });
  };
  write_named("inputs", program_.inputs, [&](JsonObject& object, std::size_t i) {
    const std::int32_t owner = step_.inputs.at(i);
    object.field(owner < 0 ? "state" : "batch", owner < 0 ? -(owner + 1) : owner);
  });
  write_named("gradients", program_.gradients, [&](JsonObject& object, std::size_t i) {
    if (program_.gradients[i] && step_.gradients.at(i) >= 0) object.field("state", step_.gradients[i]);
  });
  file.line("forward_outputs");
  parts_.uses(program_.forward_outputs);
  file.line("seeds");
  parts_.uses(program_.seeds);
  file.line("new_contents", program_.new_contents);
}

void Writer::write_op(const ProgramOp& op) {
  JsonObject object(out_);
  object.field("name", op.name);
  if (op.kind != ProgramOp::Kind::kCall) object.field("kind", name_of(detail::kOpKinds, op.kind));
  if (!op.scope.empty()) object.field("scope", parts_.scope(op.scope));
  if (op.phase != Phase::kForward) object.field("phase", name_of(detail::kPhases, op.phase));
  object.unless("once", op.once, false);
  object.unless("stream", op.stream, std::uint32_t{0});
  object.unless("mutates", op.mutates, false);
  if (op.expected) object.field("expected", *op.expected);
  // What autograd takes at the end follows from geometry alone and is the same on every machine.
  if (op.kind == ProgramOp::Kind::kHandOver) object.unless("workspace_bytes", op.workspace_bytes, 0);
  const std::string where = "op '" + op.name + "', ";
  parts_.call(object, "call", op.call, where);
  parts_.call(object, "first_call", op.first_call, where);
  parts_.call(object, "in_place_call", op.in_place_call, where);
  if (!op.outputs.empty()) {
    object.key("outputs");
    parts_.uses(op.outputs);
  }
  object.unless("generator_state", op.generator_state, kNoValue);
  object.unless("added_seed", op.added_seed, kNoValue);
  object.unless("added_to", op.added_to, kNoValue);
  object.unless_empty("also_reads", op.also_reads);
  object.unless_empty("also_makes", op.also_makes);
}

}  // namespace

std::string format_program(const StepProgram& step) {
  if (step.inputs.size() != step.program->inputs.size() || step.gradients.size() != step.program->gradients.size()) {
    throw InputError("'" + step.program->name + "': not every input and gradient is described");
  }
  detail::check_own_memory(step.program->name, step.program->inputs, step.inputs, step.state_names);
  return Writer(step).text();
}

}  // namespace reprise
