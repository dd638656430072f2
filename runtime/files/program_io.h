// Training steps as text (docs/formats.md): captured in one process, planned and trained in another.
//
// A program is code: its operators do what they do wherever it is run. The reader takes any text without harm, and
// refuses what is no program; it cannot tell a useful program from a harmful one. Run programs of people you trust.
#pragma once

#include <string>
#include <string_view>

#include "runtime/program/step_program.h"

namespace reprise {

// Times and workspaces of calls are left out: they belong to the machine they were measured on. Throws InputError where
// the step has what a file cannot: complex numbers, tensors of more than 16 MiB that are neither parameters nor
// buffers.
[[nodiscard]] std::string format_program(const StepProgram& step);

// `source` names the text in errors: a file name, usually. Throws InputError where the text is no program, or none that
// runs here: an operator that this libtorch does not know, a device that this machine does not have.
[[nodiscard]] StepProgram parse_program(std::string_view text, const std::string& source);

}  // namespace reprise
