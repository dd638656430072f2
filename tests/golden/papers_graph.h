// Reads the networks of data/papers.
#pragma once

#include <string>

#include "reprise/io.h"

namespace reprise::test {

inline CostedGraph papers_graph(const std::string& network) {
  return parse_graph(read_text(std::string(REPRISE_SOURCE_DIR) + "/data/papers/" + network + ".graph.json"), network);
}

}  // namespace reprise::test
