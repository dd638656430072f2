// The logs that the authors of "Dynamic Tensor Rematerialization" (Kirisame et al., ICLR 2021) publish for their
// simulator. Each line is a JSON object:
//
//   {"INSTRUCTION":"CONSTANT","NAME":"x0"}                       a tensor that is there from the start,
//   {"INSTRUCTION":"MEMORY","NAME":"x0","MEMORY":"64"}             and its bytes
//   {"INSTRUCTION":"CALL","NAME":"relu","ARGS":["x0"],"RESULT":["x1"],"TIME":"120"}      in nanoseconds, and then for
//   {"INSTRUCTION":"MEMORY","NAME":"x1","MEMORY":"64"}             each result its bytes,
//   {"INSTRUCTION":"ALIAS","NAME":"x1","ALIAS":"-1"}               and which argument it is a view of; -1: of none
//   {"INSTRUCTION":"MUTATE","NAME":"add_","ARGS":["x1","x0"],"MUTATE":[0],"TIME":"80"}   writes into x1
//   {"INSTRUCTION":"COPY","DST":"x2","SRC":"x1"}                 another name of x1
//   {"INSTRUCTION":"COPY_FROM","DST":"x2","SRC":"x0"}            x2 is a name of x0 from now on
//   {"INSTRUCTION":"RELEASE","NAME":"x1"}                        the program no longer holds x1
//   {"INSTRUCTION":"ANNOTATE","ANNOTATION":"START"}              what came before does not count; BACKWARD: it begins
//   here
//
// Constants become resident values. A call becomes an op, unless all its results are views, which vanish. A mutation
// makes new versions. What the program still holds at the end is an output of the step. Backward begins at its
// annotation or at the first call with "backward" in its name; the caller's op stands before it, and what is read by a
// backward op that reads no gradient is a seed of no bytes. The logs do not say what must not be repeated, nor what a
// call takes meanwhile.
//
// Tested by tests/unit/io/dtr_log_test.cc.
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "io/json_reader.h"
#include "io/line_reader.h"
#include "reprise/error.h"
#include "reprise/graph_builder.h"
#include "reprise/io.h"

namespace reprise {
namespace {

using detail::JsonField;
using detail::JsonKind;
using detail::JsonReader;

enum class Instruction : std::uint8_t {
  kConstant,
  kMemory,
  kAlias,
  kCall,
  kMutate,
  kCopy,
  kCopyFrom,
  kRelease,
  kAnnotate
};

constexpr std::pair<std::string_view, Instruction> kInstructions[] = {
    {"CONSTANT", Instruction::kConstant},  {"MEMORY", Instruction::kMemory},   {"ALIAS", Instruction::kAlias},
    {"CALL", Instruction::kCall},          {"MUTATE", Instruction::kMutate},   {"COPY", Instruction::kCopy},
    {"COPY_FROM", Instruction::kCopyFrom}, {"RELEASE", Instruction::kRelease}, {"ANNOTATE", Instruction::kAnnotate}};

struct Line {
  Instruction instruction{};
  std::optional<std::string> name{};
  std::optional<std::int64_t> memory{};
  std::optional<std::int64_t> alias{};
  std::optional<std::string> dst{};
  std::optional<std::string> src{};
  std::optional<std::vector<std::string>> result{};
  std::optional<std::vector<std::string>> args{};
  std::optional<std::int64_t> time{};
  std::optional<std::vector<std::int64_t>> mutate{};
  std::optional<std::string> annotation{};
};

// The logs have numbers as strings.
std::int64_t number(JsonReader& in) {
  if (!in.at(JsonKind::kString)) return in.integer();
  const std::string text = in.string();
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    in.fail("expected a whole number, found '" + text + "'");
  return value;
}

std::vector<std::string> strings(JsonReader& in) {
  std::vector<std::string> list;
  in.array([&] { list.push_back(in.string()); });
  return list;
}

std::vector<std::int64_t> numbers(JsonReader& in) {
  std::vector<std::int64_t> list;
  in.array([&] { list.push_back(number(in)); });
  return list;
}

constexpr JsonField<Line> kFields[] = {
    {"INSTRUCTION", [](JsonReader& in, Line& l) { l.instruction = in.choice(kInstructions); }, detail::kRequired},
    {"NAME", [](JsonReader& in, Line& l) { l.name = in.string(); }},
    {"MEMORY", [](JsonReader& in, Line& l) { l.memory = number(in); }},
    {"ALIAS", [](JsonReader& in, Line& l) { l.alias = number(in); }},
    {"DST", [](JsonReader& in, Line& l) { l.dst = in.string(); }},
    {"SRC", [](JsonReader& in, Line& l) { l.src = in.string(); }},
    {"RESULT", [](JsonReader& in, Line& l) { l.result = strings(in); }},
    {"ARGS", [](JsonReader& in, Line& l) { l.args = strings(in); }},
    {"TIME", [](JsonReader& in, Line& l) { l.time = number(in); }},
    {"MUTATE", [](JsonReader& in, Line& l) { l.mutate = numbers(in); }},
    {"ANNOTATION", [](JsonReader& in, Line& l) { l.annotation = in.string(); }},
};

constexpr const char* kGraphName = "DTR log";

class DtrLog {
 public:
  DtrLog(std::string_view text, std::string_view source) : lines_(text, source) {}

  CostedGraph graph() {
    while (!lines_.at_end()) {
      if (const std::optional<Line> line = next()) take(*line);
    }
    if (!in_backward_) begin_backward();
    for (const std::string& name : order_) {
      const auto [value, held] = tensors_.at(name);
      Fact& fact = facts_[index(value)];
      if (held && fact.planned && !std::exchange(fact.output, true)) builder_.output(value);
    }
    return build();
  }

 private:
  struct Tensor {
    ValueId value;
    bool held;  // the program still has it
  };
  struct Fact {  // of a value
    std::int64_t bytes;
    bool planned;
    bool gradient;
    bool output = false;
    std::size_t last_line = 0;  // where a call was last seen to read it
  };

  // The next line, unless it is blank.
  std::optional<Line> next() {
    const std::string_view text = lines_.next("a line of the log");
    if (text.empty()) return std::nullopt;
    Line line;
    JsonReader in(text, lines_.source(), lines_.line());
    in.object(kFields, line);
    return line;
  }

  // The line that has to follow, about the tensor.
  Line follow(Instruction instruction, const std::string& name) {
    const char* expected = instruction == Instruction::kMemory ? "MEMORY" : "ALIAS";
    std::optional<Line> line;
    while (!line) {
      if (lines_.at_end()) lines_.fail(std::string(expected) + " of '" + name + "' is missing at the end of the log");
      line = next();
    }
    if (line->instruction != instruction || need(line->name, "NAME") != name) {
      lines_.fail(std::string("expected ") + expected + " of '" + name + "'");
    }
    return *line;
  }

  template <typename T>
  const T& need(const std::optional<T>& field, const char* key) const {
    if (!field) lines_.fail(std::string(key) + " is missing");
    return *field;
  }
  std::int64_t need_size(const std::optional<std::int64_t>& field, const char* key) const {
    if (need(field, key) < 0) lines_.fail(std::string(key) + " is negative");
    return *field;
  }

  void take(const Line& line) {
    switch (line.instruction) {
      case Instruction::kConstant:
        return constant(need(line.name, "NAME"));
      case Instruction::kCall:
        return call(line);
      case Instruction::kMutate:
        return mutate(line);
      case Instruction::kCopy:
        return name_tensor(need(line.dst, "DST"), tensor(need(line.src, "SRC")).value);
      case Instruction::kCopyFrom:
        tensor(need(line.dst, "DST")).value = tensor(need(line.src, "SRC")).value;
        return;
      case Instruction::kRelease:
        if (const auto found = tensors_.find(need(line.name, "NAME")); found != tensors_.end()) {
          found->second.held = false;
        }
        return;
      case Instruction::kAnnotate:
        return annotate(need(line.annotation, "ANNOTATION"));
      case Instruction::kMemory:
      case Instruction::kAlias:
        lines_.fail("MEMORY and ALIAS have to follow the CONSTANT or the CALL that they belong to");
    }
  }

  void annotate(const std::string& what) {
    if (what == "BACKWARD" && !in_backward_) begin_backward();
    if (what != "START") return;
    builder_ = GraphBuilder(kGraphName);
    tensors_.clear();
    order_.clear();
    facts_.clear();
    in_backward_ = false;
  }

  void constant(const std::string& name) {
    const Line memory = follow(Instruction::kMemory, name);
    name_tensor(name, add_value(need_size(memory.memory, "MEMORY"), /*planned=*/false));
  }

  void call(const Line& line) {
    OpSpec op = begin_op(line);
    const std::vector<std::string>& results = need(line.result, "RESULT");
    const std::vector<std::string>& args = *line.args;
    if (results.empty()) lines_.fail("a call without results");
    for (const std::string& name : results) {
      const Line memory = follow(Instruction::kMemory, name);
      const Line alias = follow(Instruction::kAlias, name);
      const std::int64_t of = need(alias.alias, "ALIAS");
      if (of < -1 || of >= static_cast<std::int64_t>(args.size())) lines_.fail("ALIAS names no argument of the call");
      if (of >= 0) {
        name_tensor(name, tensor(args[static_cast<std::size_t>(of)]).value);
        continue;
      }
      op.outputs.push_back(add_value(need_size(memory.memory, "MEMORY"), /*planned=*/true));
      name_tensor(name, op.outputs.back());
    }
    if (!op.outputs.empty()) builder_.op(std::move(op));
  }

  // As in the authors' simulator, other names of what is written into go on to mean the old version.
  void mutate(const Line& line) {
    OpSpec op = begin_op(line);
    std::unordered_map<std::uint32_t, ValueId> versions;
    for (const std::int64_t position : need(line.mutate, "MUTATE")) {
      if (position < 0 || position >= static_cast<std::int64_t>(line.args->size())) {
        lines_.fail("MUTATE names no argument of the call");
      }
      Tensor& written = tensor((*line.args)[static_cast<std::size_t>(position)]);
      const ValueId old = written.value;
      const auto [version, is_new] = versions.try_emplace(static_cast<std::uint32_t>(index(old)), kNoValue);
      if (is_new) {
        const auto [bytes, planned] = std::pair(facts_[index(old)].bytes, facts_[index(old)].planned);
        version->second = add_value(bytes, /*planned=*/true);
        op.outputs.push_back(version->second);
        if (planned) builder_.overwrite(version->second, old);
      }
      written.value = version->second;
    }
    if (op.outputs.empty()) lines_.fail("a mutation of nothing");
    builder_.op(std::move(op));
  }

  // Name, time and inputs of a call.
  OpSpec begin_op(const Line& line) {
    const std::string& name = need(line.name, "NAME");
    if (!in_backward_ && name.find("backward") != std::string::npos) begin_backward();
    OpSpec op{.name = name,
              .phase = in_backward_ ? Phase::kBackward : Phase::kForward,
              .time_ns = need_size(line.time, "TIME")};
    for (const std::string& arg : need(line.args, "ARGS")) {
      const ValueId v = tensor(arg).value;
      if (std::exchange(facts_[index(v)].last_line, lines_.line()) != lines_.line()) op.inputs.push_back(v);
    }
    const auto is_gradient = [&](ValueId v) { return facts_[index(v)].gradient; };
    if (in_backward_ && std::ranges::none_of(op.inputs, is_gradient)) op.inputs.push_back(seed_);
    return op;
  }

  void begin_backward() {
    in_backward_ = true;
    seed_ = add_value(0, /*planned=*/true);
    builder_.op({.name = "caller", .phase = Phase::kCaller, .outputs = {seed_}});
  }

  ValueId add_value(std::int64_t bytes, bool planned) {
    facts_.push_back({.bytes = bytes, .planned = planned, .gradient = planned && in_backward_});
    return planned ? builder_.value(bytes) : builder_.resident(bytes);
  }

  void name_tensor(const std::string& name, ValueId value) {
    if (!tensors_.try_emplace(name, Tensor{value, true}).second) lines_.fail("'" + name + "' is made twice");
    order_.push_back(name);
  }

  Tensor& tensor(const std::string& name) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) lines_.fail("unknown tensor '" + name + "'; make it by CONSTANT, CALL or COPY first");
    return found->second;
  }

  CostedGraph build() {
    try {
      return builder_.build();
    } catch (const InputError& error) {
      throw InputError(std::string(lines_.source()) + ": " + error.what());
    }
  }

  detail::LineReader lines_;
  GraphBuilder builder_{kGraphName};
  std::unordered_map<std::string, Tensor> tensors_;
  std::vector<std::string> order_;  // names of tensors, as they came
  std::vector<Fact> facts_;         // by value
  bool in_backward_ = false;
  ValueId seed_ = kNoValue;
};

}  // namespace

CostedGraph parse_dtr_log(std::string_view text, std::string_view source) { return DtrLog(text, source).graph(); }

}  // namespace reprise
