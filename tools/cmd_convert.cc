// reprise convert: other formats to graph JSON, and graph JSON to its one canonical form.
#include "commands.h"
#include "reprise/io.h"
#include "reprise/papers.h"

namespace reprise::tools {
namespace {

bool begins_with_digit(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] >= '0' && text[first] <= '9';
}

}  // namespace

int run_convert(Options& options) {
  const std::string text = read_text(options.graph);
  const std::string source = source_name(options.graph);
  const bool authors_text = options.from.empty() ? begins_with_digit(text) : options.from == "authors-text";
  CostedGraph step = authors_text ? parse_authors_text(text, source) : parse_graph(text, source);
  if (options.complete) step = complete_backward(step.graph, step.costs);
  write_text(options.out, format_graph(step.graph, step.costs));
  return kFound;
}

}  // namespace reprise::tools
