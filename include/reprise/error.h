// The two exceptions of the core. Expected outcomes (infeasible, stopped) are not among them: they are return values.
#pragma once

#include <stdexcept>
#include <string>

namespace reprise {

// The caller gave something wrong: a file, a graph, an option. Says where and what.
class InputError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// A broken invariant of ours. Never reachable from input; a bug to report.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace reprise
