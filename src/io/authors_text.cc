// The text format of the program Kusumoto et al. released with "A Graph Theoretic Framework of Recomputation
// Algorithms for Memory-Efficient Backpropagation" (NeurIPS 2019):
//
//   N F                 N variables, F functions: the first half forward, the second half backward
//   id bytes name       N lines
//   forward             then F functions: forward or backward,
//   p q                   the numbers of inputs and outputs,
//   id type               p lines: what is read; in a backward function type is gradient, input or output
//   id                    q lines: what is made
//   Convolution2D...      the type of the function,
//   {...}                 and one line of attributes, which does not matter here
//
// Backward function i + F/2 belongs to forward function i: its types say what the gradient reads.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "io/line_reader.h"
#include "reprise/error.h"
#include "reprise/graph_builder.h"
#include "reprise/io.h"

namespace reprise {
namespace {

constexpr std::int64_t kConvolutionTime = 10;
constexpr std::int64_t kOtherTime = 1;

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

struct Variable {
  std::int64_t bytes = 0;
  std::size_t producer = kNone;  // index of the forward function
};

struct Function {
  std::size_t line = 0;
  std::string type;
  std::vector<std::size_t> inputs;  // indices of variables that a function makes, each once
  std::vector<std::size_t> outputs;
  std::int64_t first_output_id = 0;
  BackwardReads backward_reads = BackwardReads::kInputs;
};

class AuthorsText {
 public:
  AuthorsText(std::string_view text, std::string_view source) : lines_(text, source) {}

  CostedGraph graph() {
    const auto [variables, functions] = lines_.words<2>("'N F', the numbers of variables and functions");
    const std::int64_t num_variables = lines_.number(variables);
    const std::int64_t num_functions = lines_.number(functions);
    if (num_functions % 2 != 0) lines_.fail("an odd number of functions; each needs its backward one");
    for (std::int64_t i = 0; i < num_variables; ++i) read_variable();
    for (std::int64_t i = 0; i < num_functions / 2; ++i) read_forward();
    for (Function& function : functions_) read_backward(function);
    lines_.finish();
    keep_values_only();
    return build();
  }

 private:
  void read_variable() {
    const auto [id, bytes, name] = lines_.words<3>("'id bytes name' of a variable");
    const std::int64_t number = lines_.number(id);
    if (!variable_of_id_.try_emplace(number, variables_.size()).second) {
      lines_.fail("variable " + std::to_string(number) + " comes twice");
    }
    variables_.push_back({.bytes = lines_.number(bytes)});
  }

  std::size_t variable(std::string_view word) const {
    const auto found = variable_of_id_.find(lines_.number(word));
    if (found == variable_of_id_.end()) lines_.fail("unknown variable " + std::string(word));
    return found->second;
  }

  // The first two lines of a function: its numbers of inputs and outputs.
  std::pair<std::int64_t, std::int64_t> read_head(std::string_view kind) {
    const auto [found] = lines_.words<1>("a function");
    if (found != kind) lines_.fail("expected '" + std::string(kind) + "', found '" + std::string(found) + "'");
    const auto [inputs, outputs] = lines_.words<2>("'p q', the numbers of inputs and outputs");
    return {lines_.number(inputs), lines_.number(outputs)};
  }

  void read_forward() {
    Function function;
    function.line = lines_.line() + 1;
    const auto [num_inputs, num_outputs] = read_head("forward");
    for (std::int64_t i = 0; i < num_inputs; ++i) {
      const auto [id, ignored] = lines_.words<2>("'id type' of an input");
      function.inputs.push_back(variable(id));
    }
    if (num_outputs == 0) lines_.fail("a forward function without outputs");
    for (std::int64_t i = 0; i < num_outputs; ++i) read_output(function);
    const auto [type] = lines_.words<1>("the type of the function");
    function.type = type;
    lines_.next("the attributes of the function");
    functions_.push_back(std::move(function));
  }

  void read_output(Function& function) {
    const auto [id] = lines_.words<1>("the id of an output");
    const std::size_t made = variable(id);
    if (variables_[made].producer != kNone) lines_.fail("variable " + std::string(id) + " is made twice");
    variables_[made].producer = functions_.size();
    if (function.outputs.empty()) function.first_output_id = lines_.number(id);
    function.outputs.push_back(made);
  }

  void read_backward(Function& function) {
    const auto [num_inputs, num_outputs] = read_head("backward");
    bool reads_inputs = false;
    bool reads_outputs = false;
    for (std::int64_t i = 0; i < num_inputs; ++i) {
      const auto [id, type] = lines_.words<2>("'id type' of an input");
      static_cast<void>(lines_.number(id));
      reads_inputs |= type == "input";
      reads_outputs |= type == "output";
      if (type != "input" && type != "output" && type != "gradient") {
        lines_.fail("expected 'gradient', 'input' or 'output', found '" + std::string(type) + "'");
      }
    }
    for (std::int64_t i = 0; i < num_outputs; ++i) {
      const auto [id] = lines_.words<1>("the id of an output");
      static_cast<void>(lines_.number(id));
    }
    lines_.next("the type of the function");
    lines_.next("the attributes of the function");
    if (reads_outputs) function.backward_reads = reads_inputs ? BackwardReads::kBoth : BackwardReads::kOutputs;
  }

  // Variables without a producer are data and parameters, which the papers do not count.
  void keep_values_only() {
    std::vector<std::size_t> last_reader(variables_.size(), kNone);
    for (std::size_t f = 0; f < functions_.size(); ++f) {
      std::erase_if(functions_[f].inputs, [&](std::size_t v) {
        return variables_[v].producer == kNone || std::exchange(last_reader[v], f) == f;
      });
    }
  }

  CostedGraph build() const {
    GraphBuilder builder;
    std::vector<ValueId> values(variables_.size(), kNoValue);
    for (const std::size_t f : topological_order()) {
      const Function& function = functions_[f];
      OpSpec op;
      op.name = name(function);
      op.backward_reads = function.backward_reads;
      op.time_ns = function.type.starts_with("Conv") ? kConvolutionTime : kOtherTime;
      for (const std::size_t v : function.inputs) op.inputs.push_back(values[v]);
      for (const std::size_t v : function.outputs) {
        values[v] = builder.value(variables_[v].bytes);
        op.outputs.push_back(values[v]);
      }
      builder.op(std::move(op));
    }
    try {
      return builder.build();
    } catch (const InputError& error) {
      throw InputError(std::string(lines_.source()) + ": " + error.what());
    }
  }

  static std::string name(const Function& function) {
    return function.type + "_" + std::to_string(function.first_output_id);
  }

  // Kahn's algorithm; if several functions could come next, the first one in the text does.
  std::vector<std::size_t> topological_order() const {
    std::vector<std::size_t> missing(functions_.size());
    std::vector<std::vector<std::size_t>> readers(functions_.size());
    std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
    for (std::size_t f = 0; f < functions_.size(); ++f) {
      missing[f] = functions_[f].inputs.size();
      if (missing[f] == 0) ready.push(f);
      for (const std::size_t v : functions_[f].inputs) readers[variables_[v].producer].push_back(f);
    }
    std::vector<std::size_t> order;
    while (!ready.empty()) {
      order.push_back(ready.top());
      ready.pop();
      for (const std::size_t reader : readers[order.back()]) {
        if (--missing[reader] == 0) ready.push(reader);
      }
    }
    if (order.size() < functions_.size()) fail_cycle(missing);
    return order;
  }

  // A function that was never ready lacks the output of another such function, so going back from one to the next ends
  // in a cycle.
  [[noreturn]] void fail_cycle(const std::vector<std::size_t>& missing) const {
    const auto never_ready = [&](std::size_t f) { return missing[f] > 0; };
    std::size_t f = 0;
    while (!never_ready(f)) ++f;
    std::vector<std::size_t> path;
    std::vector<std::uint8_t> visited(functions_.size(), 0);
    while (std::exchange(visited[f], 1) == 0) {
      path.push_back(f);
      const auto& inputs = functions_[f].inputs;
      const auto blocked =
          std::ranges::find_if(inputs, [&](std::size_t v) { return never_ready(variables_[v].producer); });
      f = variables_[*blocked].producer;
    }
    path.erase(path.begin(), std::ranges::find(path, f));
    lines_.fail_at(functions_[f].line, "a cycle: " + cycle_text(path));
  }

  // "b_2 reads a_1 reads b_2"
  std::string cycle_text(const std::vector<std::size_t>& cycle) const {
    constexpr std::size_t kShown = 8;
    std::string text;
    for (std::size_t i = 0; i < std::min(cycle.size(), kShown); ++i) text += name(functions_[cycle[i]]) + " reads ";
    if (cycle.size() > kShown) text += "... reads ";
    return text + name(functions_[cycle.front()]);
  }

  detail::LineReader lines_;
  std::unordered_map<std::int64_t, std::size_t> variable_of_id_;
  std::vector<Variable> variables_;
  std::vector<Function> functions_;  // in the order of the text
};

}  // namespace

CostedGraph parse_authors_text(std::string_view text, std::string_view source) {
  AuthorsText reader(text, source);
  return reader.graph();
}

}  // namespace reprise
