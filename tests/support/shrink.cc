#include "support/shrink.h"

namespace reprise::test {
namespace {

// All graphs that are one change smaller, with the largest changes first.
std::vector<Dag> smaller_ones(const Dag& dag) {
  std::vector<Dag> found;
  for (int v = 0; v < dag.size(); ++v) found.push_back(without_node(dag, v));
  for (int w = 0; w < dag.size(); ++w) {
    for (const int u : dag.preds[w]) found.push_back(without_edge(dag, u, w));
  }
  for (int v = 0; v < dag.size(); ++v) {
    for (auto costs : {&Dag::time, &Dag::bytes}) {
      if ((dag.*costs)[v] == 0) continue;
      Dag cheaper = dag;
      (cheaper.*costs)[v] /= 2;
      found.push_back(std::move(cheaper));
    }
  }
  return found;
}

bool shrink_once(Dag& dag, const std::function<bool(const Dag&)>& fails) {
  for (Dag& smaller : smaller_ones(dag)) {
    if (!fails(smaller)) continue;
    dag = std::move(smaller);
    return true;
  }
  return false;
}

}  // namespace

Dag shrink(Dag dag, const std::function<bool(const Dag&)>& fails) {
  while (shrink_once(dag, fails)) {
  }
  return dag;
}

std::string shrunk_json(const Dag& dag, const std::function<bool(const Dag&)>& fails) {
  return "smallest failing graph:\n" + to_json(shrink(dag, fails));
}

}  // namespace reprise::test
