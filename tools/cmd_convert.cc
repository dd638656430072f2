// reprise convert: other formats to graph JSON, and graph JSON to its one canonical form.
#include <algorithm>

#include "commands.h"
#include "reprise/io.h"
#include "reprise/papers.h"

namespace reprise::tools {
namespace {

bool begins_with_digit(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] >= '0' && text[first] <= '9';
}

// Whether the first line is an instruction of a log.
bool is_dtr_log(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  const std::string_view line = text.substr(begin, text.find('\n', begin) - begin);
  return line.starts_with('{') && line.find("\"INSTRUCTION\"") != std::string_view::npos;
}

std::string format_of(std::string_view text) {
  if (begins_with_digit(text)) return "authors-text";
  return is_dtr_log(text) ? "dtr-log" : "graph-json";
}

CostedGraph parse(const std::string& text, const std::string& source, const std::string& format) {
  if (format == "authors-text") return parse_authors_text(text, source);
  return format == "dtr-log" ? parse_dtr_log(text, source) : parse_graph(text, source);
}

}  // namespace

int run_convert(Options& options) {
  const std::string text = read_text(options.graph);
  const std::string source = source_name(options.graph);
  CostedGraph step = parse(text, source, options.from.empty() ? format_of(text) : options.from);
  if (options.complete) step = complete_backward(step.graph, step.costs);
  write_text(options.out, format_graph(step.graph, step.costs));
  return kFound;
}

}  // namespace reprise::tools
