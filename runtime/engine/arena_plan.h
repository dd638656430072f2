// Where everything that a plan makes lies in an arena, looked up by action, and what the plan takes beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "reprise/costs.h"
#include "reprise/graph.h"
#include "reprise/plan.h"
#include "runtime/engine/call_script.h"
#include "runtime/program/program.h"

namespace reprise {

class ArenaPlan {
 public:
  struct Piece {
    ValueId value = kNoValue;  // kNoValue: the workspace
    std::int64_t offset = 0;
    std::int64_t bytes = 0;
  };

  // Calls whose scripts are known get the workspace that their scripts need. REQUIRES: validate(graph, plan) found
  // nothing.
  ArenaPlan(const Program& program, const Graph& graph, Costs costs, const Plan& plan, const CallScripts& scripts,
            std::int64_t alignment_bytes);

  [[nodiscard]] std::span<const Piece> pieces(std::size_t action) const;
  [[nodiscard]] std::int64_t arena_bytes() const { return arena_bytes_; }
  [[nodiscard]] std::int64_t load_bytes() const { return load_bytes_; }  // the most that is live in it at once
  [[nodiscard]] std::size_t scripts_version() const { return scripts_version_; }

  // The most that lies beside the arena at once: what was there before the step, what the caller holds, and what it
  // takes. The costs may differ in what the caller takes from those that the addresses were made for.
  struct Beside {
    std::int64_t peak_bytes = 0;
    std::int64_t backward_peak_bytes = 0;  // from the caller's op on
  };
  [[nodiscard]] Beside beside(const Graph& graph, const Costs& costs, const Plan& plan) const;

 private:
  std::vector<Piece> pieces_;
  std::vector<std::size_t> first_;  // by action: its first piece; one more at the end
  std::int64_t arena_bytes_ = 0;
  std::int64_t load_bytes_ = 0;
  std::size_t scripts_version_;
};

}  // namespace reprise
