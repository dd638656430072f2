// The parts of program files that calls are made of: values, uses of them, arguments by the schema of an operator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/json_reader.h"
#include "runtime/program/program.h"

namespace reprise::detail {

// What has been read of a file so far and is named by its position from then on.
struct ProgramNames {
  std::string torch_version;  // the version that wrote the file
  std::vector<std::string> scopes{};
  std::vector<Geometry> geometries{};
  std::size_t num_values = 0;
  std::optional<std::size_t> num_computed{};  // of a step of any size: numbers that follow from sizes (size_table.h)
};

// A number, which may be the name of one that follows from sizes.
[[nodiscard]] std::int64_t read_integer(JsonReader& in, const ProgramNames& names);

[[nodiscard]] ValueId read_value(JsonReader& in, const ProgramNames& names);
[[nodiscard]] std::optional<TensorUse> read_use(JsonReader& in,
                                                const ProgramNames& names);  // [value, geometry] or null
[[nodiscard]] std::vector<std::optional<TensorUse>> read_uses(JsonReader& in, const ProgramNames& names);
[[nodiscard]] Call read_call(JsonReader& in, const ProgramNames& names);

[[nodiscard]] std::optional<at::Device> device_from(const std::string& name);
// A tensor of the CPU that holds a copy of the bytes.
[[nodiscard]] at::Tensor tensor_of(const Geometry& geometry, std::string_view bytes);

}  // namespace reprise::detail
