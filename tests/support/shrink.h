// Makes a failing graph small: drops nodes and edges and halves costs for as long as it still fails.
#pragma once

#include <functional>

#include "support/dag.h"

namespace reprise::test {

// REQUIRES: fails(dag). The result fails too, and no graph that is one change smaller fails.
[[nodiscard]] Dag shrink(Dag dag, const std::function<bool(const Dag&)>& fails);

// `what` and the shrunk graph as JSON, for a message.
[[nodiscard]] std::string shrunk_json(const Dag& dag, const std::function<bool(const Dag&)>& fails);

}  // namespace reprise::test
