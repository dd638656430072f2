// What a call asks its allocator for, request by request, and where inside the call's own memory each request goes.
//
// A call has memory for each of its outputs and one piece of workspace. Its script is made from one run that was
// watched: a request that became an output gets that output's memory. Others get the lowest free part of the memory of
// an output that is asked for later, and else of the workspace. Take a run that asks for 8 bytes, frees them, asks for
// 4 and returns 8 new ones: the first request lies where the output will lie, and only the second needs workspace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "reprise/ids.h"

namespace reprise {

// One request of a run that was watched. Times count requests and frees.
struct SeenRequest {
  void* data = nullptr;
  std::int64_t bytes = 0;
  std::size_t begin = 0;
  std::optional<std::size_t> end{};  // nothing: it was not freed during the call
  ValueId output = kNoValue;         // what it became
  bool in_arena = false;
};

struct ScriptedRequest {
  std::int64_t bytes = 0;
  ValueId output = kNoValue;  // in whose memory it lies; kNoValue: in the workspace
  std::int64_t offset = 0;    // in that memory
  bool is_kept = false;       // by a library, beyond the call: it gets no planned memory

  friend bool operator==(const ScriptedRequest&, const ScriptedRequest&) = default;
};

struct CallScript {
  std::vector<ScriptedRequest> requests{};
  std::int64_t workspace_bytes = 0;

  friend bool operator==(const CallScript&, const CallScript&) = default;
};

// `has_memory` says which outputs have memory of the call's own; others belong to the caller.
[[nodiscard]] CallScript make_script(std::span<const SeenRequest> seen, std::int64_t alignment_bytes,
                                     const std::function<bool(ValueId)>& has_memory);

// The scripts of the calls of a step.
class CallScripts {
 public:
  // An op's runs may differ by whether they are its first and by whether they are in place.
  struct Kind {
    OpId op;
    bool first = false;
    bool in_place = false;

    friend bool operator<(const Kind& a, const Kind& b) {
      return std::tie(a.op, a.first, a.in_place) < std::tie(b.op, b.first, b.in_place);
    }
  };

  // The script of such a run, or of one that differs only in being the first or not; nullptr if there is none.
  [[nodiscard]] const CallScript* find(Kind kind) const;
  // Whether a script of exactly this kind is known, or was wrong so often that it is not learned any more.
  [[nodiscard]] bool is_settled(Kind kind) const;
  // Keeps another script for such runs.
  void learn(Kind kind, CallScript script);
  // The most that the scripts of an op need; nothing if none is known.
  [[nodiscard]] std::optional<std::int64_t> workspace_bytes(OpId op) const;
  [[nodiscard]] bool empty() const { return known_.empty(); }
  [[nodiscard]] std::size_t version() const { return version_; }  // changes when a script does

 private:
  struct Known {
    CallScript script{};
    int changes = 0;
  };
  std::map<Kind, Known> known_;
  std::size_t version_ = 0;
};

}  // namespace reprise
