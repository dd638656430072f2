#include "runtime/online/follow.h"

#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/device/meter.h"
#include "runtime/online/arguments.h"
#include "runtime/online/signature.h"
#include "runtime/online/storage_copy.h"

namespace reprise::online {
namespace {

constexpr std::uint64_t kOutside = 1ULL << 32U;

LoggedCall::Made made_of(const Value& value) {
  const auto output = std::ranges::find(value.maker->outputs, &value, &Output::value);
  return {value.id, output->is_use ? value.maker->uses[output->index].value->id : kNothing};
}

}  // namespace

Follower::Call Follower::look_at(const OperatorCard& card, std::span<const c10::IValue> arguments) const {
  Call call;
  Hash hash;
  hash.add(static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(&card)));
  for (const std::uint32_t i : card.tensors) {
    for_each_tensor(arguments[i], [&](std::size_t element, const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      hash.add(static_cast<std::uint64_t>(element));
      add_shape(hash, tensor);
      c10::StorageImpl* storage = storage_of(tensor);
      const Cell* cell = storage == nullptr ? nullptr : cell_of(storage);
      const std::uint32_t id = cell == nullptr ? kNotInStep : cell->value->id;
      hash.add(id == kNotInStep ? kOutside : std::uint64_t{id});
      if (id != kNotInStep && std::ranges::find(call.reads, id) == call.reads.end()) call.reads.push_back(id);
    });
  }
  for (const std::uint32_t i : card.whole) add_whole(hash, arguments[i]);
  call.signature = hash.value();
  return call;
}

Follower::Place Follower::before(const OperatorCard& card, const c10::OperatorHandle& op,
                                 std::span<const c10::IValue> arguments) {
  std::shared_ptr<const Script> script;
  Place place;
  {
    const Table::Lock lock(table_);
    place.number = next_++;
    if (state_ == State::kIdle) return place;
    Call call = look_at(card, arguments);
    if (state_ == State::kFollowing && !agrees(place.number, call.signature))
      change_script(place.number, call.signature);
    if (state_ == State::kLogging) log(std::move(call), op);
    if (state_ == State::kFollowing && script_->has_plan()) script = script_;
    place.is_measured = state_ == State::kLogging || is_measuring();
  }
  if (script != nullptr) obey(*script, place.number);
  return place;
}

void Follower::log(Call call, const c10::OperatorHandle& op) {
  if (log_.calls.size() == kMostCalls) {  // no backward pass ends here
    stop_logging();
    return;
  }
  const int task = torch::autograd::get_current_graph_task_id();
  const bool ends_step = task != -1 && !torch::autograd::get_current_graph_task_keep_graph();
  log_.calls.push_back({.signature = call.signature,
                        .name = op.operator_name().name,
                        .reads = std::move(call.reads),
                        .pass = ends_step ? task : -1});
}

void Follower::stop_logging() {
  log_ = {};
  table_.begin_step();
  state_ = State::kIdle;
}

void Follower::begins(std::size_t number, std::int64_t allocated_bytes) {
  const Table::Lock lock(table_);
  if (is_measuring() && log_.calls.empty()) log_ = script_->log;
  if (number >= log_.calls.size()) return;
  std::int64_t resident_bytes = 0;
  for (const Value* value : table_.candidates()) resident_bytes += value->bytes;
  log_.calls[number].outside_bytes = allocated_bytes - resident_bytes;
  if (state_ != State::kLogging) return;
  const bool had_pressure = table_.taken_bytes() > taken_before_bytes_;
  if (counts_.steps == 0 && number == kCallsToJudge && !had_pressure && allocated_bytes < budget_bytes_ / 8) {
    stop_logging();
    return;
  }
  log_.calls[number].own_bytes = -allocated_bytes;  // completed by after()
  measured_ = number + 1;
  (void)take_watermark(device_);
}

void Follower::after(std::size_t number, std::int64_t cost_ns, std::span<Value* const> made) {
  // The step may have ended meanwhile, in another thread.
  const std::size_t known = state_ == State::kFollowing ? script_->log.calls.size() : log_.calls.size();
  if (state_ == State::kIdle || number >= std::min(known, next_)) return;
  for (Value* value : made) table_.enlist(*value);
  if (state_ == State::kFollowing) {
    const auto& expected = script_->log.calls[number].makes;
    const bool same = std::ranges::equal(made, expected, [&](const Value* value, const LoggedCall::Made& m) {
      return made_of(*value) == m && value->bytes == script_->log.bytes[m.value];
    });
    if (same && is_measuring() && number < log_.calls.size()) {
      log_.calls[number].cost_ns = std::clamp<std::int64_t>(cost_ns, 1, log_.calls[number].cost_ns);
    }
    if (same && script_->has_plan()) {
      for (Value* value : made) value->kept = true;
      for (const Order& order : script_->orders[number].after) free(order);
    }
    if (same) return;
    depart(number + 1);
  }
  if (state_ != State::kLogging) return;
  LoggedCall& call = log_.calls[number];
  std::int64_t made_bytes = 0;
  call.makes.clear();
  log_.bytes.resize(table_.enlisted() - made.size());
  for (const Value* value : made) {
    call.makes.push_back(made_of(*value));
    if (call.makes.back().over == kNothing) made_bytes += value->bytes;
    log_.bytes.push_back(value->bytes);
  }
  call.repeatable = !made.empty();
  call.cost_ns = std::max<std::int64_t>(1, cost_ns);
  if (measured_ != number + 1) return;  // The script, or a call of another thread, has said what it takes.
  call.own_bytes = std::max<std::int64_t>(0, call.own_bytes + take_watermark(device_) - made_bytes);
}

// After scripts that were of no use, fewer are made.
bool Follower::may_plan() const { return 2 * (since_planned_ + 1) >= 1 << std::min(in_vain_, 16); }

bool Follower::is_measuring() const {
  return state_ == State::kFollowing && script_->has_plan() && (script_ == stale_ || !script_->is_revised);
}

bool Follower::agrees(std::size_t number, std::uint64_t signature) const {
  const auto& calls = script_->log.calls;
  return number < calls.size() && calls[number].signature == signature;
}

void Follower::change_script(std::size_t number, std::uint64_t signature) {
  const std::shared_ptr<const Script> before = std::move(script_);
  log_ = {};
  const auto& done = before->log.calls;
  for (auto other = scripts_.rbegin(); other != scripts_.rend(); ++other) {
    script_ = *other;
    if (script_ == before || number > done.size() || !agrees(number, signature)) continue;
    const auto& calls = script_->log.calls;
    const bool same = std::equal(done.begin(), done.begin() + static_cast<std::ptrdiff_t>(number), calls.begin(),
                                 [](const LoggedCall& a, const LoggedCall& b) { return a.signature == b.signature; });
    if (same) {
      align_with_script(number);
      return;
    }
  }
  script_ = before;
  depart(number);
}

// What the script does not have at this place may go; what it has and is not there will be restored when it is read.
void Follower::align_with_script(std::size_t number) {
  const std::vector<bool> live =
      script_->has_plan() ? script_->live_before(number) : std::vector<bool>(script_->log.bytes.size(), true);
  for (std::uint32_t id = 0; id < table_.enlisted(); ++id) {
    Value* value = table_.of_step(id);
    if (value == nullptr) continue;
    value->forget_script();
    value->kept = script_->has_plan() && live[id];
  }
}

void Follower::depart(std::size_t number) {
  ++counts_.departures;
  for (std::uint32_t id = 0; id < table_.enlisted(); ++id) {
    if (Value* value = table_.of_step(id)) value->forget_script();
  }
  const std::shared_ptr<const Script> departed = std::move(script_);
  script_ = nullptr;
  log_ = {};
  if (!may_plan()) {
    state_ = State::kIdle;
    return;
  }
  state_ = State::kLogging;
  const auto& calls = departed->log.calls;
  log_.calls.assign(calls.begin(), calls.begin() + static_cast<std::ptrdiff_t>(std::min(number, calls.size())));
  log_.bytes = departed->log.bytes;
  log_.bytes.resize(table_.enlisted());
}

// Its memory is taken when somebody asks for it.
void Follower::free(const Order& order) {
  Value* value = table_.of_step(order.id);
  if (value == nullptr) return;
  value->kept = false;
  value->spent = order.kind == Order::Kind::kSpend;
  value->again_at = order.again_at;
  value->saved_ns_per_byte = order.saved_ns_per_byte;
}

void Follower::obey(const Script& script, std::size_t number) {
  const CallOrders& orders = script.orders[number];
  try {
    for (const Order& order : orders.before) {
      if (order.frees()) {
        const Table::Lock lock(table_);
        free(order);
      } else {
        make_again(script, order);
      }
    }
    for (const std::uint32_t id : orders.copy) copy(id);
  } catch (const std::exception&) {
    // There is less room than planned for. What the call reads may come back nevertheless, or will say what is missing.
    const Table::Lock lock(table_);
    if (state_ == State::kFollowing) depart(number);
    return;
  }
  const Table::Lock lock(table_);
  for (const LoggedCall::Made& made : script.log.calls[number].makes) {
    const bool is_copied = std::ranges::find(orders.copy, made.over) != orders.copy.end();
    if (made.over == kNothing || is_copied || made.over >= table_.enlisted()) continue;
    if (Value* value = table_.of_step(made.over)) value->kept = false;
  }
}

void Follower::make_again(const Script& script, const Order& order) {
  Held wanted(table_);
  {
    const Table::Lock lock(table_);
    if (state_ != State::kFollowing) return;
    for (const LoggedCall::Made& made : script.log.calls[order.id].makes) {
      Value* value = table_.of_step(made.value);
      if (order.kind == Order::Kind::kAgainInPlace && made.over != kNothing) {
        if (Value* over = table_.of_step(made.over)) over->kept = false;
      }
      if (value == nullptr || !value->maker) continue;
      value->kept = true;
      if (!value->resident && !wanted.value()) wanted.hold(value);
    }
    if (!wanted.value()) return;
    Table::lock(*wanted.value());
  }
  const auto unlock = [&] {
    const Table::Lock lock(table_);
    Table::unlock(*wanted.value());
  };
  try {
    restorer_.restore(*wanted.value());
  } catch (...) {
    unlock();
    throw;
  }
  unlock();
}

// The program is about to write over a value that will be read to make another again.
void Follower::copy(std::uint32_t id) {
  Held held(table_);
  c10::Storage from;
  {
    const Table::Lock lock(table_);
    Value* value = table_.of_step(id);
    if (value == nullptr || !value->resident || value->cell == nullptr || value->held) return;
    from = Table::storage_of(*value);
    held.hold(value);
    Table::lock(*value);
  }
  c10::intrusive_ptr<c10::StorageImpl> made;
  try {
    made = copy_of(from);
  } catch (...) {
    const Table::Lock lock(table_);
    Table::unlock(*held.value());
    throw;
  }
  const Table::Lock lock(table_);
  Table::unlock(*held.value());
  held.value()->held = std::move(made);
}

void Follower::end_step() {
  StepLog done;
  bool is_revised = false;
  {
    const Table::Lock lock(table_);
    ++counts_.steps;
    ++since_planned_;
    since_pressure_ = table_.taken_bytes() > taken_before_bytes_ ? 0 : since_pressure_ + 1;
    if (state_ == State::kFollowing && next_ < script_->log.calls.size()) depart(next_);
    if (state_ == State::kFollowing) {
      ++counts_.followed_steps;
      const bool fits = counts_.unplanned_evictions == unplanned_before_;
      in_vain_ = fits ? 0 : in_vain_ + 1;
      std::erase(scripts_, script_);
      is_revised = is_measuring() && !log_.calls.empty();
      if (is_revised) {
        done = std::exchange(log_, {});
      } else {
        scripts_.push_back(script_);
      }
      stale_ = fits || is_revised || !may_plan() ? nullptr : script_;
    } else if (state_ == State::kLogging) {
      for (std::uint32_t id = 0; id < table_.enlisted(); ++id) {
        const Value* value = table_.of_step(id);
        if (value != nullptr && value->cell != nullptr) log_.held.push_back(id);
      }
      done = std::exchange(log_, {});
    }
    script_ = nullptr;
    state_ = State::kIdle;
    table_.begin_step();
  }
  if (!done.calls.empty() && planning_seconds_ > 0) plan(std::move(done), is_revised);
  begin_step();
}

void Follower::plan(StepLog log, bool is_revised) {
  const bool needs_plan = is_revised || since_pressure_ == 0;
  if (!needs_plan && scripts() == 0) return;
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  Script made = needs_plan ? plan_log(std::move(log), budget_bytes_, planning_seconds_) : without_plan(std::move(log));
  made.is_revised = is_revised;
  const Table::Lock lock(table_);
  counts_.planning_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  scripts_.push_back(std::make_shared<const Script>(std::move(made)));
  if (scripts_.size() > kMostScripts) {
    const auto without = std::ranges::find_if(scripts_, [](const auto& script) { return !script->has_plan(); });
    scripts_.erase(without == scripts_.end() ? scripts_.begin() : without);
  }
  if (!needs_plan || is_revised) return;
  ++in_vain_;
  since_planned_ = 0;
}

void Follower::begin_step() {
  const Table::Lock lock(table_);
  next_ = 0;
  taken_before_bytes_ = table_.taken_bytes();
  unplanned_before_ = counts_.unplanned_evictions;
  if (planning_seconds_ <= 0) return;
  if (!scripts_.empty()) {
    script_ = scripts_.back();
    state_ = State::kFollowing;
  } else {
    state_ = since_pressure_ < kStepsToLog ? State::kLogging : State::kIdle;
  }
}

void Follower::set_budget(std::int64_t bytes) {
  const Table::Lock lock(table_);
  budget_bytes_ = bytes;
  scripts_.clear();
  stale_ = nullptr;
  for (std::uint32_t id = 0; id < table_.enlisted(); ++id) {
    if (Value* value = table_.of_step(id)) value->forget_script();
  }
  log_ = {};
  script_ = nullptr;
  state_ = next_ == 0 && planning_seconds_ > 0 ? State::kLogging : State::kIdle;
}

std::shared_ptr<const Script> Follower::latest_plan() const {
  const Table::Lock lock(table_);
  const auto found =
      std::ranges::find_if(scripts_.rbegin(), scripts_.rend(), [](const auto& s) { return s->has_plan(); });
  return found == scripts_.rend() ? nullptr : *found;
}

StepLog Follower::known_log() const {
  if (!scripts_.empty()) return scripts_.back()->log;
  StepLog log = log_;
  if (log.calls.empty()) return log;
  const LoggedCall latest = log.calls.back();
  for (auto id = static_cast<std::uint32_t>(table_.enlisted()); id-- > 0;) {
    const Value* value = table_.of_step(id);
    if (value == nullptr || value->cell == nullptr) continue;
    log.calls.push_back(
        {.name = "later", .reads = {id}, .outside_bytes = latest.outside_bytes, .pass = std::max(0, latest.pass)});
  }
  return log;
}

}  // namespace reprise::online
