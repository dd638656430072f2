// REPRISE_CHECK(condition): our own invariants, kept on in release builds.
#pragma once

#include "reprise/error.h"

namespace reprise::detail {

[[noreturn]] inline void check_failed(const char* condition, const char* file, int line) {
  throw InternalError(std::string(file) + ":" + std::to_string(line) + ": broken invariant: " + condition);
}

}  // namespace reprise::detail

#define REPRISE_CHECK(condition) \
  ((condition) ? void() : ::reprise::detail::check_failed(#condition, __FILE__, __LINE__))
