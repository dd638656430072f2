// Training steps of any size to text: docs/formats.md.
#include <utility>

#include "io/json_writer.h"
#include "reprise/error.h"
#include "runtime/files/family_io.h"
#include "runtime/files/part_writer.h"
#include "runtime/files/program_text.h"

namespace reprise {
namespace {

using detail::append_json;
using detail::append_lines;
using detail::append_list;
using detail::append_size;
using detail::JsonObject;
using Origin = ToldStep::Origin;

// Sizes are inputs of a step that was traced with symbols. Without them, inputs and gradients are those of the tensors.
ToldStep without_sizes(ToldStep told) {
  Uses inputs;
  std::vector<std::optional<ProgramBuilder::Gradient>> gradients;
  for (std::size_t i = 0; i < told.inputs.size(); ++i) {
    if (!told.inputs[i]) continue;
    inputs.push_back(std::move(told.inputs[i]));
    gradients.push_back(std::move(told.gradients[i]));
  }
  told.inputs = std::move(inputs);
  told.gradients = std::move(gradients);
  return told;
}

class FamilyWriter {
 public:
  FamilyWriter(const StepFamily& step, ToldStep told) : step_(step), told_(std::move(told)) {}

  std::string text() {
    {
      JsonObject file(out_);
      write_inputs(file);
      parts_.constants(file, told_.constants, told_.name);
      write_calls(file, "forward", told_.forward);
      file.line("outputs");
      parts_.uses(told_.outputs);
      file.line("seeds");
      parts_.uses(told_.seeds);
      write_calls(file, "backward", told_.backward);
      write_gradients(file);
      if (told_.split) file.line("split", *told_.split);
      out_ += '\n';
    }
    std::string text = head();
    text.back() = ',';  // instead of ending the object
    return text + out_.substr(1) + '\n';
  }

 private:
  [[nodiscard]] std::string head() const {
    std::string out;
    {
      JsonObject file(out);
      file.line("format", detail::kFamilyFormat);
      file.field("version", detail::kFamilyVersion);
      file.line("torch", detail::torch_version());
      file.field("device", told_.device.str());
      file.line("name", told_.name);
      file.line("state", step_.state_names);
      write_symbols(file, out);
      const auto write = [&](const SizeTable::Expression& expression) { write_expression(out, expression); };
      append_lines(file.line("conditions"), step_.limits.conditions, write);
      append_lines(file.line("computed"), told_.sizes.expressions(), write);
      file.line("scopes", parts_.scopes());
      append_lines(file.line("geometries"), parts_.geometries(), [&](const std::string& text) { out += text; });
      write_memory(file.line("memory"));
    }
    return out;
  }

  void write_symbols(JsonObject& file, std::string& out) const {
    std::size_t i = 0;
    append_lines(file.line("symbols"), step_.symbols, [&](const StepFamily::Symbol& symbol) {
      const SizeLimits::Range& range = step_.limits.ranges.at(i++);
      JsonObject object(out);
      object.field("batch", symbol.batch);
      object.field("dimension", symbol.dimension);
      object.field("here", symbol.here);
      object.unless("least", range.least, SizeLimits::Range{}.least);
      object.unless("most", range.most, SizeLimits::Range{}.most);
    });
  }

  static void write_expression(std::string& out, const SizeTable::Expression& expression) {
    append_list(out, expression, [&](const SizeTable::Instruction& instruction) {
      if (instruction.code == SizeTable::Code::kConstant) {
        append_json(out, instruction.number);
      } else if (instruction.code == SizeTable::Code::kSymbol) {
        JsonObject object(out);
        object.field("symbol", instruction.number);
      } else {
        append_json(out, detail::name_of(kSizeCodes, instruction.code));
      }
    });
  }

  void write_memory(std::string& out) const {
    JsonObject object(out);
    append_list(object.line("bytes"), told_.memory,
                [&](const ToldStep::Memory& memory) { append_size(out, memory.bytes); });
    const auto those = [&](auto belongs) {
      std::vector<std::size_t> names;
      for (std::size_t i = 0; i < told_.memory.size(); ++i) {
        if (belongs(told_.memory[i])) names.push_back(i);
      }
      return names;
    };
    object.line("resident", those([](const ToldStep::Memory& memory) { return memory.origin == Origin::kResident; }));
    object.line("seeds", those([](const ToldStep::Memory& memory) { return memory.origin == Origin::kSeed; }));
    const auto elsewhere = those([&](const ToldStep::Memory& memory) { return memory.device != told_.device; });
    append_list(object.line("elsewhere"), elsewhere, [&](std::size_t name) {
      JsonObject item(out);
      item.field("memory", name);
      item.field("device", told_.memory[name].device.str());
    });
  }

  void write_inputs(JsonObject& file) {
    std::size_t i = 0;
    append_lines(file.line("inputs"), told_.inputs, [&](const std::optional<TensorUse>& use) {
      const std::int32_t owner = step_.inputs.at(i++);
      JsonObject object(out_);
      object.key("use");
      parts_.use(use);
      object.field(owner < 0 ? "state" : "batch", owner < 0 ? -(owner + 1) : owner);
    });
  }

  void write_calls(JsonObject& file, std::string_view key, const std::vector<ProgramBuilder::SeenCall>& calls) {
    append_lines(file.line(key), calls, [&](const ProgramBuilder::SeenCall& seen) {
      if (seen.first_call || seen.expected) throw InternalError("a step of any size has no such calls");
      JsonObject object(out_);
      object.field("name", seen.name);
      if (!seen.scope.empty()) object.field("scope", parts_.scope(seen.scope));
      object.unless("once", !seen.repeats, false);
      parts_.call(object, "call", seen.call, "call '" + seen.name + "', ");
      if (seen.results.empty()) return;
      object.key("outputs");
      parts_.uses(seen.results);
    });
  }

  void write_gradients(JsonObject& file) {
    std::size_t i = 0;
    append_lines(file.line("gradients"), told_.gradients, [&](const std::optional<ProgramBuilder::Gradient>& gradient) {
      const std::int32_t owner = step_.gradients.at(i++);
      JsonObject object(out_);
      object.key("use");
      parts_.use(gradient ? std::optional(gradient->use) : std::nullopt);
      if (!gradient) return;
      if (owner >= 0) object.field("state", owner);
      if (gradient->variable) object.field("variable", parts_.geometry(*gradient->variable));
      object.unless("name", gradient->name, "");
      if (!gradient->scope.empty()) object.field("scope", parts_.scope(gradient->scope));
    });
  }

  const StepFamily& step_;
  const ToldStep told_;
  std::string out_;
  detail::PartWriter parts_{out_};
};

}  // namespace

std::string format_family(const StepFamily& step) {
  ToldStep told = without_sizes(step.program->told());
  if (step.inputs.size() != told.inputs.size() || step.gradients.size() != told.gradients.size()) {
    throw InputError("'" + told.name + "': not every input and gradient is described");
  }
  detail::check_own_memory(told.name, told.inputs, step.inputs, step.state_names);
  return FamilyWriter(step, std::move(told)).text();
}

}  // namespace reprise
