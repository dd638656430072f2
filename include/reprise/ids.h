// Ids are types of their own, so that an op cannot be used where a value is meant.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reprise {

enum class OpId : std::uint32_t {};
enum class ValueId : std::uint32_t {};
enum class ScopeId : std::uint32_t {};

inline constexpr OpId kNoOp{0xFFFFFFFFU};
inline constexpr ValueId kNoValue{0xFFFFFFFFU};
inline constexpr ScopeId kNoScope{0xFFFFFFFFU};

[[nodiscard]] constexpr std::size_t index(OpId id) { return static_cast<std::size_t>(id); }
[[nodiscard]] constexpr std::size_t index(ValueId id) { return static_cast<std::size_t>(id); }
[[nodiscard]] constexpr std::size_t index(ScopeId id) { return static_cast<std::size_t>(id); }

[[nodiscard]] constexpr OpId op_id(std::size_t i) { return static_cast<OpId>(i); }
[[nodiscard]] constexpr ValueId value_id(std::size_t i) { return static_cast<ValueId>(i); }
[[nodiscard]] constexpr ScopeId scope_id(std::size_t i) { return static_cast<ScopeId>(i); }

}  // namespace reprise
