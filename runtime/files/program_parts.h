// The parts that files of steps have in common besides calls: device, names, geometries, constants.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "io/json_reader.h"
#include "runtime/files/program_arguments.h"

namespace reprise::detail {

// A device that this machine has.
[[nodiscard]] at::Device read_device(JsonReader& in);
// Names that differ.
[[nodiscard]] std::vector<std::string> read_state_names(JsonReader& in);
void read_geometries(JsonReader& in, ProgramNames& names);
[[nodiscard]] std::string read_scope(JsonReader& in, const ProgramNames& names);
// A position among so many names of state; the position of a tensor in a batch.
[[nodiscard]] std::int32_t read_state_position(JsonReader& in, std::size_t count);
[[nodiscard]] std::int32_t read_batch_position(JsonReader& in);
[[nodiscard]] std::vector<std::pair<ValueId, at::Tensor>> read_constants(JsonReader& in, const ProgramNames& names);

}  // namespace reprise::detail
