#include "solve/online/online_run.h"

#include <algorithm>
#include <utility>

namespace reprise::detail {

OnlineRun::OnlineRun(const OnlineView& step, const OnlineOptions& options)
    : step_(step),
      graph_(step.graph),
      options_(options),
      most_runs_(8 * step.graph.num_ops() + 64),
      ran_(step.graph.num_ops(), 0),
      state_(step.graph.num_values(), State::kNotYet),
      pinned_(step.graph.num_values(), 0),
      locks_(step.graph.num_values(), 0),
      read_ns_(step.graph.num_values(), 0),
      density_(step.graph.num_values(), 0),
      node_(step.graph.num_values(), 0),
      place_(step.graph.num_values(), 0) {
  for (ValueId v{0}; index(v) < graph_.num_values(); ++v) {
    if (step.evictable[v] == 0 || step.bytes(v) == 0) continue;
    density_[v] =
        static_cast<double>(step.costs.time_ns[index(graph_.producer(v))]) / static_cast<double>(step.bytes(v));
  }
}

std::optional<OnlineCourse> OnlineRun::course() {
  begin();
  if (live_bytes_ > options_.budget_bytes) return std::nullopt;
  for (OpId op{0}; index(op) < graph_.num_ops(); ++op) {
    now_ = static_cast<std::uint32_t>(index(op));
    if (!run_with_inputs(op)) return std::nullopt;
    end_lives(op);
  }
  now_ = static_cast<std::uint32_t>(graph_.num_ops());
  if (!bring_back_outputs()) return std::nullopt;
  return std::move(course_);
}

void OnlineRun::begin() {
  live_bytes_ = course_.peak_bytes = step_.start_bytes;
  for (ValueId v{0}; index(v) < graph_.num_values(); ++v) {
    if (graph_.residence(v) == Residence::kPlanned) continue;
    state_[v] = State::kPresent;
    pinned_[v] = graph_.pinned(v) ? 1 : 0;
    if (graph_.readers(v).empty() && !graph_.is_output(v)) give_back(v);
  }
}

// The step is over, and the caller wants its outputs.
bool OnlineRun::bring_back_outputs() {
  for (const ValueId v : graph_.step_outputs()) ++locks_[v];
  for (const ValueId v : graph_.step_outputs()) {
    if (state_[v] == State::kAbsent && !run_with_inputs(graph_.producer(v))) return false;
  }
  return true;
}

// The op, after everything that it lacks.
bool OnlineRun::run_with_inputs(OpId op) {
  push(op);
  while (!stack_.empty()) {
    const OpId missing = first_missing(stack_.back());
    if (missing != kNoOp) {
      push(missing);
      continue;
    }
    if (!run(stack_.back())) return false;
    stack_.pop_back();
  }
  return true;
}

// What was made first comes back first: computing it may take what the others are computed from, while they would only
// lie there meanwhile.
OpId OnlineRun::first_missing(OpId op) const {
  OpId first = kNoOp;
  for (const ValueId v : graph_.inputs(op)) {
    if (state_[v] == State::kPresent) continue;
    first = std::min(first, graph_.producer(v));
    if (!options_.rules.oldest_first) break;
  }
  return first;
}

// What is absent is locked as well, so that it stays when it comes back.
void OnlineRun::push(OpId op) {
  for (const ValueId v : graph_.inputs(op)) ++locks_[v];
  stack_.push_back(op);
}

bool OnlineRun::run(OpId op) {
  const bool first = std::exchange(ran_[op], 1) == 0;
  const bool in_place = runs_in_place(op);
  const auto takes_over = [&](ValueId v) { return in_place && graph_.overwrites(v) != kNoValue; };
  std::int64_t fresh_bytes = step_.costs.workspace_bytes[index(op)];
  for (const ValueId v : graph_.outputs(op)) fresh_bytes += takes_over(v) ? 0 : step_.bytes(v);
  if (!make_room(fresh_bytes)) return false;
  if (course_.runs.size() >= most_runs_ || course_.recompute_ns > Costs::kMaxTotalTime) return false;

  course_.peak_bytes = std::max(course_.peak_bytes, live_bytes_ + fresh_bytes);
  course_.runs.push_back(op);
  clock_ns_ += step_.costs.time_ns[index(op)];
  if (!first) course_.recompute_ns += step_.costs.time_ns[index(op)];
  for (const ValueId v : graph_.inputs(op)) {
    --locks_[v];
    if (first) read_ns_[v] = clock_ns_;
  }
  for (const ValueId v : graph_.outputs(op)) {
    if (takes_over(v)) {
      const ValueId old = graph_.overwrites(v);
      pinned_[v] = graph_.held(v) ? 1 : pinned_[old];
      live_bytes_ -= step_.bytes(old);
      let_go(old);
    } else if (first) {
      pinned_[v] = graph_.held(v) ? 1 : 0;
    }
    if (!first && step_.evictable[v] == 0) continue;  // it is there, or was needed for the last time
    arrive(v);
    if (first) read_ns_[v] = clock_ns_;
  }
  return true;
}

// Whether nothing that the op may write over is wanted by the program, or by another run on the stack. Nothing that
// cannot be brought back is written over before the program does it.
bool OnlineRun::runs_in_place(OpId op) const {
  bool any = false;
  for (const ValueId v : graph_.outputs(op)) {
    const ValueId old = graph_.overwrites(v);
    if (old == kNoValue) continue;
    const bool root = step_.evictable[old] == 0;
    if (root && index(op) != now_) return false;
    const std::uint32_t end = root ? step_.needed_until[old] : step_.wanted_until[old];
    if (state_[v] == State::kPresent || locks_[old] > 1 || end > now_) return false;
    any = true;
  }
  return any;
}

bool OnlineRun::make_room(std::int64_t bytes) {
  while (live_bytes_ + bytes > options_.budget_bytes) {
    const ValueId v = victim();
    if (v == kNoValue) return false;
    give_back(v);
  }
  return true;
}

ValueId OnlineRun::victim() {
  Victim held;
  Victim ghost;
  for (const ValueId v : pool_) {
    if (locks_[v] == 0) compare(v, options_.rules.ghosts_first && is_ghost(v) ? ghost : held);
  }
  if (ghost.value == kNoValue) return held.value;
  course_.ghosts_mattered |= held.value != kNoValue && held < ghost;
  return ghost.value;
}

void OnlineRun::compare(ValueId v, Victim& best) {
  const auto since_ns = static_cast<double>(std::max<std::int64_t>(1, clock_ns_ - read_ns_[v]));
  const auto beaten = [&](double h) { return best.value != kNoValue && best < Victim{h, v}; };
  double h = density_[v] / since_ns;
  if (beaten(h)) return;
  auto cost = static_cast<double>(step_.costs.time_ns[index(graph_.producer(v))]);
  ++round_;
  for (const ValueId other : step_.neighbours[index(v)]) {
    if (state_[other] != State::kAbsent) continue;
    const Components::Node root = components_.root(node_[other]);
    if (components_.first_in_round(root, round_)) cost += components_.cost(root);
  }
  h = cost / static_cast<double>(step_.bytes(v)) / since_ns;
  if (!beaten(h)) best = {h, v};
}

// After a run, the value is there.
void OnlineRun::arrive(ValueId v) {
  if (state_[v] == State::kPresent) return;  // the second copy is dropped
  if (state_[v] == State::kAbsent) {
    components_.leave(node_[v], static_cast<double>(step_.costs.time_ns[index(graph_.producer(v))]));
  }
  state_[v] = State::kPresent;
  live_bytes_ += step_.bytes(v);
  if (step_.evictable[v] == 0 || step_.bytes(v) == 0) return;
  place_[v] = static_cast<std::uint32_t>(pool_.size());
  pool_.push_back(v);
}

void OnlineRun::give_back(ValueId v) {
  if (state_[v] != State::kPresent || pinned_[v] != 0) return;
  live_bytes_ -= step_.bytes(v);
  let_go(v);
}

void OnlineRun::let_go(ValueId v) {
  state_[v] = State::kGone;
  if (step_.evictable[v] == 0) return;
  state_[v] = State::kAbsent;
  node_[v] = components_.add(static_cast<double>(step_.costs.time_ns[index(graph_.producer(v))]));
  for (const ValueId other : step_.neighbours[index(v)]) {
    if (state_[other] == State::kAbsent) components_.join(node_[other], node_[v]);
  }
  if (step_.bytes(v) == 0) return;
  place_[pool_.back()] = place_[v];
  pool_[place_[v]] = pool_.back();
  pool_.pop_back();
}

void OnlineRun::end_lives(OpId op) {
  for (const ValueId v : step_.ended_by[index(op)]) give_back(v);
}

std::vector<OnlineCourse> online_courses(const OnlineView& step, const OnlineOptions& options) {
  std::vector<OnlineCourse> found;
  if (std::optional<OnlineCourse> course = OnlineRun(step, options).course()) found.push_back(*std::move(course));
  if (!options.rules.ghosts_first || (!found.empty() && !found.front().ghosts_mattered)) return found;
  OnlineOptions other = options;
  other.rules.ghosts_first = false;
  if (std::optional<OnlineCourse> course = OnlineRun(step, other).course()) found.push_back(*std::move(course));
  return found;
}

}  // namespace reprise::detail
