#include "runtime/engine/call_script.h"

#include <algorithm>
#include <limits>

namespace reprise {
namespace {

constexpr int kMostChanges = 4;  // a call whose requests change more often is served as it comes

struct Taken {
  std::size_t begin;
  std::size_t end;
  std::int64_t offset;
  std::int64_t bytes;
};

// Memory of a call, with what lies in it at which times.
struct Part {
  ValueId output = kNoValue;
  std::int64_t bytes = std::numeric_limits<std::int64_t>::max();
  std::size_t until = std::numeric_limits<std::size_t>::max();  // when its output is asked for
  std::vector<Taken> taken{};

  // The lowest offset at which nothing lies during these times.
  [[nodiscard]] std::int64_t lowest_gap(std::size_t begin, std::size_t end, std::int64_t size) const {
    std::vector<Taken> beside;
    for (const Taken& other : taken) {
      if (other.begin < end && begin < other.end) beside.push_back(other);
    }
    std::ranges::sort(beside, {}, &Taken::offset);
    std::int64_t offset = 0;
    for (const Taken& other : beside) {
      if (other.offset >= offset + size) break;
      offset = std::max(offset, other.offset + other.bytes);
    }
    return offset;
  }
};

}  // namespace

CallScript make_script(std::span<const SeenRequest> seen, std::int64_t alignment_bytes,
                       const std::function<bool(ValueId)>& has_memory) {
  const auto rounded = [&](std::int64_t bytes) {
    return (bytes + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
  };
  std::vector<Part> parts;
  for (const SeenRequest& request : seen) {
    if (request.output != kNoValue && has_memory(request.output)) {
      parts.push_back({.output = request.output, .bytes = rounded(request.bytes), .until = request.begin});
    }
  }
  parts.push_back({});  // the workspace
  CallScript script;
  for (const SeenRequest& request : seen) {
    ScriptedRequest& made = script.requests.emplace_back();
    made.bytes = request.bytes;
    made.output = request.output;
    made.is_kept = request.output == kNoValue && !request.end;
    if (request.output != kNoValue || made.is_kept) continue;
    const std::int64_t size = rounded(request.bytes);
    for (Part& part : parts) {
      const std::int64_t offset = part.lowest_gap(request.begin, *request.end, size);
      if (*request.end > part.until || offset + size > part.bytes) continue;
      part.taken.push_back({request.begin, *request.end, offset, size});
      made.output = part.output;
      made.offset = offset;
      if (part.output == kNoValue) script.workspace_bytes = std::max(script.workspace_bytes, offset + size);
      break;
    }
  }
  return script;
}

const CallScript* CallScripts::find(Kind kind) const {
  auto found = known_.find(kind);
  if (found == known_.end()) {
    kind.first = !kind.first;
    found = known_.find(kind);
  }
  return found == known_.end() ? nullptr : &found->second.script;
}

bool CallScripts::is_settled(Kind kind) const {
  const auto found = known_.find(kind);
  return found != known_.end() && found->second.changes >= kMostChanges;
}

// Addresses that were made for as much workspace hold for this script, too.
void CallScripts::learn(Kind kind, CallScript script) {
  const std::optional<std::int64_t> before = workspace_bytes(kind.op);
  const auto [found, is_new] = known_.try_emplace(kind);
  if (!is_new) ++found->second.changes;
  found->second.script = std::move(script);
  if (workspace_bytes(kind.op) != before) ++version_;
}

std::optional<std::int64_t> CallScripts::workspace_bytes(OpId op) const {
  std::optional<std::int64_t> most;
  for (auto at = known_.lower_bound({.op = op}); at != known_.end() && at->first.op == op; ++at) {
    most = std::max(most.value_or(0), at->second.script.workspace_bytes);
  }
  return most;
}

}  // namespace reprise
