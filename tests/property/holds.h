// Checks a property of forward graphs: a function that returns what is wrong with a graph, or "". A graph that breaks
// the property is made as small as possible and printed.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/dag.h"
#include "support/shrink.h"

namespace reprise::test {

using Property = std::string (*)(const Dag&);

inline void expect_holds(const std::vector<Dag>& dags, Property broken) {
  for (const Dag& dag : dags) {
    const std::string wrong = broken(dag);
    if (wrong.empty()) continue;
    const Dag small = shrink(dag, [&](const Dag& smaller) { return !broken(smaller).empty(); });
    ADD_FAILURE() << wrong << "\nsmallest: " << broken(small) << '\n' << to_json(small);
    return;
  }
}

}  // namespace reprise::test
