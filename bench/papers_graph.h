// Reads the networks of data/papers for the benchmarks.
#pragma once

#include <string>

#include "reprise/io.h"

namespace reprise {

inline std::string papers_text(const std::string& network) {
  return read_text(std::string(REPRISE_SOURCE_DIR) + "/data/papers/" + network + ".graph.json");
}

inline CostedGraph papers_graph(const std::string& network) { return parse_graph(papers_text(network), network); }

}  // namespace reprise
