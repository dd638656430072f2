// Checks what was told of a step by a file, so that a ProgramBuilder can be told the same at any size.
#pragma once

#include <string>

#include "runtime/program/family/told_step.h"

namespace reprise::detail {

// Memory is used by its name only after it was named, each is made once and in the way it is said to be, and calls have
// what the builder takes for granted. Throws InputError, which begins with `source`. Whether the program at one size is
// legal is another question (program_check.h).
// REQUIRES: uses name memory that is in the list, and calls have the arguments of their operators.
void check_told(const ToldStep& told, const std::string& source);

}  // namespace reprise::detail
