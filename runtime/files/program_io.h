// Training steps as text (docs/formats.md): captured in one process, planned and trained in another.
//
// A program is code: its operators act wherever it is run. Reading any text is harmless, and the reader refuses text
// that is not a program, but it cannot tell a useful program from a harmful one. Run only programs from people you
// trust.
#pragma once

#include <string>
#include <string_view>

#include "runtime/program/step_program.h"

namespace reprise {

// Times and workspaces of calls are left out: they belong to the machine they were measured on. Throws InputError if
// the step has something that a file cannot hold: complex numbers, or tensors of more than 16 MiB that are neither
// parameters nor buffers.
[[nodiscard]] std::string format_program(const StepProgram& step);

// `source` names the text in errors; it is usually a file name. Throws InputError if the text is not a program, or if
// it cannot run here because of an operator that this libtorch does not know or a device that this machine does not
// have.
[[nodiscard]] StepProgram parse_program(std::string_view text, const std::string& source);

}  // namespace reprise
