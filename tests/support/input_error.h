// The message of the InputError that a call throws.
#pragma once

#include <string>

#include "reprise/error.h"

namespace reprise {

template <typename Call>
std::string input_error(Call call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return "(no error)";
}

}  // namespace reprise
