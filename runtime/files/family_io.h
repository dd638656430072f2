// Training steps of any size as text (docs/formats.md). What program_io.h says of programs holds here too.
#pragma once

#include <string>
#include <string_view>

#include "runtime/program/family/step_family.h"

namespace reprise {

// Throws InputError if the step has something that a file cannot hold. Inputs that are not tensors are left out: a file
// names sizes by the tensors that have them.
[[nodiscard]] std::string format_family(const StepFamily& step);

// Throws InputError if the text is not such a step, or cannot run here. Then all that calls name is there; whether the
// step at one size is a legal program is checked where it is made (StepFamily::at).
[[nodiscard]] StepFamily parse_family(std::string_view text, const std::string& source);

// Whether the text, if it is a file of Reprise, is one of these, by its first key.
[[nodiscard]] bool is_family(std::string_view text);

}  // namespace reprise
