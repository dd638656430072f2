// The rules that executors rely on and that no type enforces; a file may break any of them.
#pragma once

#include <string>

#include "runtime/program/step_program.h"

namespace reprise::detail {

// Throws InputError, with `source` in front: "net.program.json: op 41 'relu_7': ...". The rules of graphs are among
// those checked.
void check_program(const StepProgram& step, const std::string& source);

}  // namespace reprise::detail
