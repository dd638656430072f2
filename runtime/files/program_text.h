// The words of program files: types of elements, numbers with a point, bytes.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/program/program.h"

namespace reprise::detail {

inline constexpr std::string_view kProgramFormat = "reprise.program";
inline constexpr std::int64_t kProgramVersion = 1;
inline constexpr std::int64_t kProgramVersionWithStreams = 2;  // with ops on communicators
inline constexpr std::string_view kFamilyFormat = "reprise.family";
inline constexpr std::int64_t kFamilyVersion = 1;
inline constexpr std::size_t kMostConstantBytes = std::size_t{16} << 20;

inline constexpr std::pair<std::string_view, ProgramOp::Kind> kOpKinds[] = {
    {"call", ProgramOp::Kind::kCall},          {"generator_state", ProgramOp::Kind::kGeneratorState},
    {"effect", ProgramOp::Kind::kEffect},      {"caller", ProgramOp::Kind::kCaller},
    {"hand_over", ProgramOp::Kind::kHandOver}, {"wait", ProgramOp::Kind::kWait},
};
inline constexpr std::pair<std::string_view, Phase> kPhases[] = {
    {"forward", Phase::kForward}, {"caller", Phase::kCaller}, {"backward", Phase::kBackward}};

// For example "float32". Throws InputError for types that a program file cannot have (quantized ones).
[[nodiscard]] std::string_view dtype_name(at::ScalarType dtype);
[[nodiscard]] std::optional<at::ScalarType> dtype_from(std::string_view name);

// The shortest text that reads back as the same number: "0.1", "-inf", "nan".
[[nodiscard]] std::string double_text(double number);
[[nodiscard]] std::optional<double> double_from(std::string_view text);

// Base 64 (RFC 4648), padded.
[[nodiscard]] std::string bytes_text(std::span<const std::uint8_t> bytes);
[[nodiscard]] std::optional<std::string> bytes_from(std::string_view text);

// The version of the libtorch that this was built with, such as "2.13.0".
[[nodiscard]] std::string torch_version();

}  // namespace reprise::detail
