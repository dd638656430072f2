// Makes a failing graph small: drops nodes and edges and halves costs as long as the graph still fails.
#pragma once

#include <functional>

#include "support/dag.h"

namespace reprise::test {

// REQUIRES: fails(dag). The result fails too, and no graph that is one change smaller fails.
[[nodiscard]] Dag shrink(Dag dag, const std::function<bool(const Dag&)>& fails);

// A message with the shrunk graph as JSON.
[[nodiscard]] std::string shrunk_json(const Dag& dag, const std::function<bool(const Dag&)>& fails);

}  // namespace reprise::test
