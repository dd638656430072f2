// The two exceptions of the core. Expected outcomes (infeasible, stopped) are not among them: they are return values.
#pragma once

#include <stdexcept>
#include <string>

namespace reprise {

// The caller passed something wrong: a file, a graph or an option. The message says what is wrong and where.
class InputError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// One of our invariants is broken. No input should lead here; this is a bug to report.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace reprise
