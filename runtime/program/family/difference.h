// Whether two captures are of one program.
#pragma once

#include <optional>
#include <string>

#include "runtime/program/program.h"

namespace reprise {

// Where two programs first differ, in words, or nothing. The names of ops do not count.
[[nodiscard]] std::optional<std::string> difference(const Program& program, const Program& other);

}  // namespace reprise
