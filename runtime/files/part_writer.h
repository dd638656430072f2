// Writes the parts that files of steps have in common. Geometries and scopes get their positions while the rest is
// written; the head of the file, which contains both, is put in front at the end.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/json_writer.h"
#include "runtime/program/program.h"

namespace reprise::detail {

// A number, or {"computed":0} for the name of one that follows from sizes.
void append_size(std::string& out, std::int64_t number);

// Items line by line.
template <typename Items, typename Write>
void append_lines(std::string& out, const Items& items, Write write) {
  append_list(out, items, [&](const auto& item) {
    out += '\n';
    write(item);
  });
  out.insert(out.size() - 1, "\n");
}

// Each parameter that is read from a file gets memory of its own, so parameters must not share memory. Throws
// InputError if they do. `owners` are those of a StepProgram.
void check_own_memory(const std::string& program, std::span<const std::optional<TensorUse>> inputs,
                      std::span<const std::int32_t> owners, std::span<const std::string> state_names);

class PartWriter {
 public:
  // Appends to `out`, which must outlive the writer.
  explicit PartWriter(std::string& out) : out_(out) {}

  void use(const std::optional<TensorUse>& use);
  void uses(const std::vector<std::optional<TensorUse>>& uses);
  [[nodiscard]] std::size_t geometry(const Geometry& geometry);
  [[nodiscard]] std::size_t scope(const std::string& scope) { return scopes_[scope]; }
  // `where` names the call in errors.
  void call(JsonObject& op, std::string_view key, const std::optional<Call>& call, const std::string& where);
  // Throws InputError, with the name of the program, if they are too large for a file.
  void constants(JsonObject& file, std::span<const std::pair<ValueId, at::Tensor>> constants, const std::string& name);

  [[nodiscard]] const std::vector<std::string>& scopes() const { return scopes_.list(); }
  [[nodiscard]] const std::vector<std::string>& geometries() const { return geometries_.list(); }

 private:
  void write_argument(const Argument& argument, const std::string& where);
  void write_constant(const c10::IValue& value, const std::string& where);
  void write_number(const at::Tensor& tensor, const std::string& where);

  std::string& out_;
  JsonNames geometries_;
  JsonNames scopes_;
};

}  // namespace reprise::detail
