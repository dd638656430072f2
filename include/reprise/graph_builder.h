// Makes a graph and its costs, and checks both.
//
//   GraphBuilder b;
//   ValueId weight = b.resident(400), x = b.arriving(64), y = b.value(64);
//   b.op({.name = "linear", .time_ns = 1200, .inputs = {weight, x}, .outputs = {y}});
//   ...
//   const auto [graph, costs] = b.build();
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reprise/costs.h"
#include "reprise/graph.h"
#include "reprise/ids.h"

namespace reprise {

struct OpSpec {
  std::string name{};
  ScopeId scope = kNoScope;
  Phase phase = Phase::kForward;
  std::int64_t time_ns = 0;
  std::int64_t workspace_bytes = 0;
  bool once = false;         // must not be repeated; always true for the caller's op
  std::uint32_t stream = 0;  // above 0: a start on that communicator (graph.h)
  BackwardReads backward_reads = BackwardReads::kInputs;
  std::vector<ValueId> inputs{};
  std::vector<ValueId> outputs{};
};

// Collects a graph and checks it. Ids count up from 0 in the order of the calls, separately for values and for ops.
class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name = {});

  ScopeId scope(std::string path);
  ValueId value(std::int64_t bytes);
  ValueId arriving(std::int64_t bytes);
  ValueId resident(std::int64_t bytes);
  OpId op(OpSpec spec);

  void hold(ValueId value);                              // the caller owns it too
  void output(ValueId value);                            // must be live at the end of the step
  void overwrite(ValueId new_value, ValueId old_value);  // new_value's op may write over old_value

  // Throws InputError, naming the op or value, if the graph breaks a rule of docs/formats.md. The builder cannot be
  // used afterwards.
  [[nodiscard]] CostedGraph build();

 private:
  ValueId add_value(std::int64_t bytes, Residence residence);
  [[nodiscard]] bool known(ValueId value) const;
  void check_known(ValueId value, const char* list) const;
  void check_counts() const;
  void connect();
  void check_produced() const;
  void check_overwrites() const;
  void check_overwrite(std::size_t op, ValueId new_value, ValueId old_value) const;
  void check_streams();
  void check_start(std::size_t op) const;
  void check_wait(std::size_t op, OpId start) const;
  void freeze();

  Graph graph_;
  Costs costs_;
  std::vector<OpSpec> specs_;
};

}  // namespace reprise
