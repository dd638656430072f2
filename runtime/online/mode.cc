#include "runtime/online/mode.h"

#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Allocator.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "reprise/torch/errors.h"
#include "runtime/device/generator.h"
#include "runtime/online/arguments.h"
#include "runtime/online/storage_copy.h"
#include "runtime/online/thread.h"

namespace reprise::online {
namespace {

constexpr int kMostVersions = 16;

// Dense memory of the device, which a plain tensor can see.
bool is_plain(const at::Tensor& tensor, c10::Device device) {
  const c10::DispatchKey key = device.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA;
  return tensor.has_storage() && tensor.key_set().has(key) && tensor.device() == device && !tensor.is_quantized() &&
         !tensor.is_nested();
}

// Such as the 0.5 in x * torch.tensor(0.5), where x is on another device.
bool is_number_on_host(const at::Tensor& tensor, c10::Device device) {
  return !device.is_cpu() && tensor.is_cpu() && tensor.dim() == 0 && is_plain(tensor, at::kCPU);
}

// The argument without its tensors.
c10::IValue without_tensors(const c10::IValue& value) {
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (std::size_t i = 0; i < value.toListRef().size(); ++i) list.push_back(at::Tensor());
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (std::size_t i = 0; i < value.toListRef().size(); ++i) list.push_back(std::nullopt);
    return list;
  }
  return {};
}

// Counts calls that are running.
class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int>& count_;
};

}  // namespace

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Reading::~Reading() {
  if (values_.empty()) return;
  const Table::Lock lock(table_);
  for (const Ref<Value>& value : values_) Table::unlock(*value);
  values_.clear();
}

void Reading::add(const at::Tensor& tensor) {
  c10::StorageImpl* storage = storage_of(tensor);
  Cell* cell = storage == nullptr ? nullptr : cell_of(storage);
  if (cell == nullptr) return;
  Table::lock(*cell->value);
  lacks_some_ = lacks_some_ || !cell->value->resident;
  values_.push_back(cell->value);
}

void Reading::add(const OperatorCard& card, std::span<const c10::IValue> arguments) {
  const Table::Lock lock(table_);
  for (const std::uint32_t i : card.tensors) {
    for_each_tensor(arguments[i], [this](std::size_t, const at::Tensor& tensor) { add(tensor); });
  }
}

void Reading::done(std::int64_t at_ns) {
  for (const Ref<Value>& value : values_) {
    Table::unlock(*value);
    value->last_read_ns = at_ns;
  }
  values_.clear();
}

void Mode::call(const OperatorCard& card, const c10::OperatorHandle& op, c10::DispatchKeySet below,
                torch::jit::Stack& stack) {
  if (this_thread.depth > 0) {
    call_inside(card, op, below, stack);
    return;
  }
  if (stream_ && current_stream(device_) != stream_) {
    call_elsewhere(card, op, below, stack);
    return;
  }
  const Inside inside(&op);
  const Counted running(running_);
  const std::size_t first = stack.size() - card.arguments;
  const std::span<const c10::IValue> arguments = std::span(stack).subspan(first);
  const Follower::Place place = follower_.before(card, op, arguments);
  Reading reading(table_);
  reading.add(card, arguments);
  if (reading.lacks_some()) bring_back(reading);
  Made made{.card = card, .op = op, .below = below, .answer = prepare(card, op, arguments)};
  if (made.answer.random && made.answer.repeatable) made.generator_state = generator_state(device_);
  made.arguments.assign(arguments.begin(), arguments.end());
  if (place.is_measured) follower_.begins(place.number, allocated_bytes());
  const std::int64_t begin_ns = now_ns();
  const std::int64_t aside_ns = this_thread.aside_ns;
  run(card, op, below, stack, made.arguments);
  const std::span<const c10::IValue> results = std::span(stack).subspan(first);
  const std::int64_t end_ns = now_ns();
  made.cost_ns = device_.is_cpu() ? end_ns - begin_ns - (this_thread.aside_ns - aside_ns)
                                  : costs_.ns(card, op, made.arguments, results);
  const Table::Lock lock(table_);
  made.end_ns = device_.is_cpu() ? end_ns : clock_ns() + made.cost_ns;
  const auto values = note(made, results);
  reading.done(made.end_ns);
  follower_.after(place.number, made.cost_ns, values);
}

// What the call writes is lost if it fails.
void Mode::run(const OperatorCard& card, const c10::OperatorHandle& op, c10::DispatchKeySet below,
               torch::jit::Stack& stack, std::span<const c10::IValue> arguments) {
  this_thread.refusal.clear();
  try {
    op.redispatchBoxed(below, &stack);
  } catch (const c10::OutOfMemoryError&) {
    give_up(card.written, arguments, Contents::kLost);
    if (this_thread.refusal.empty()) throw;
    refuse(std::exchange(this_thread.refusal, {}));
  } catch (...) {
    give_up(card.written, arguments, Contents::kLost);
    throw;
  }
}

// On another stream. Nobody knows when it is done with what it reads, so that stays from now on.
void Mode::call_elsewhere(const OperatorCard& card, const c10::OperatorHandle& op, c10::DispatchKeySet below,
                          torch::jit::Stack& stack) {
  const Inside inside(&op);
  const Counted running(running_);
  const std::span<const c10::IValue> arguments = std::span(stack).last(card.arguments);
  Reading reading(table_);
  reading.add(card, arguments);
  if (reading.lacks_some()) bring_back(reading);
  if (!reading.values().empty()) {
    // The program has waited for what it reads to be made, but it may have been brought back since, by the mode's
    // stream.
    const OnStream so_that_this_one_waits(stream_);
  }
  give_up(card.tensors, arguments, Contents::kKept);
  (void)prepare(card, op, arguments);  // what is computed from what it writes does not need that any more
  const torch::jit::Stack kept(arguments.begin(), arguments.end());
  run(card, op, below, stack, kept);
}

// A part of a call may read what the whole does not get as an argument.
void Mode::call_inside(const OperatorCard& card, const c10::OperatorHandle& op, c10::DispatchKeySet below,
                       torch::jit::Stack& stack) {
  const std::span<const c10::IValue> arguments = std::span(stack).last(card.arguments);
  bool unknown = false;
  for (const std::uint32_t i : card.tensors) {
    for_each_tensor(arguments[i], [&](std::size_t, const at::Tensor& tensor) {
      c10::StorageImpl* storage = storage_of(tensor);
      const Cell* cell = storage == nullptr ? nullptr : cell_of(storage);
      unknown = unknown || (cell != nullptr && cell->value->locks == 0);
    });
  }
  if (!unknown) {
    op.redispatchBoxed(below, &stack);
    return;
  }
  Reading reading(table_);
  reading.add(card, arguments);
  if (reading.lacks_some()) bring_back(reading);
  const torch::jit::Stack kept(arguments.begin(), arguments.end());
  op.redispatchBoxed(below, &stack);
  if (!card.written.empty()) give_up(card.written, kept, Contents::kLost);
}

void Mode::bring_back(const Reading& reading) {
  check_thrashing();
  const std::int64_t begin_ns = now_ns();
  std::vector<Value*> missing;
  for (const Ref<Value>& value : reading.values()) missing.push_back(value.get());
  std::ranges::sort(missing, {}, &Value::number);
  for (Value* value : missing) {
    if (!value->resident) restorer_.restore(*value);
  }
  this_thread.aside_ns += now_ns() - begin_ns;
}

// What can be known before a call is made. Whoever is computed from a root that the call will write over is made
// independent of it.
CallAnswer Mode::prepare(const OperatorCard& card, const c10::OperatorHandle& op,
                         std::span<const c10::IValue> arguments) {
  CallAnswer answer{.repeatable = card.repeatable};
  if (card.depends) answer = answer_of(op, arguments, device_.type());
  const bool writes = !card.written.empty();
  // Optimizers and the like keep what they write from step to step, and must not keep how it came about.
  if (writes && !at::GradMode::is_enabled() && torch::autograd::get_current_graph_task_id() == -1) {
    answer.repeatable = false;
  }
  if (card.keeps_memory) give_up(card.tensors, arguments, Contents::kKept);
  for (const std::uint32_t i : card.written) {
    for_each_tensor(arguments[i], [&](std::size_t, const at::Tensor& tensor) {
      if (free_readers_of_roots(tensor)) answer.repeatable = false;
    });
  }
  for (const std::size_t i : answer.statistics) {
    for_each_tensor(arguments[i], [&](std::size_t, const at::Tensor& tensor) {
      if (!free_readers_of_roots(tensor)) answer.repeatable = false;
    });
  }
  return answer;
}

// Whether the tensor's memory is a root.
bool Mode::free_readers_of_roots(const at::Tensor& written) {
  c10::StorageImpl* storage = storage_of(written);
  if (storage == nullptr) return true;
  Held root(table_);
  {
    const Table::Lock lock(table_);
    if (cell_of(storage) != nullptr) return false;
    root.hold(table_.known_root(storage));
  }
  if (root.value()) restorer_.make_independent_of(root.value());
  return true;
}

// The memory of these arguments is the program's from now on, with whatever is in it.
void Mode::give_up(std::span<const std::uint32_t> which, std::span<const c10::IValue> arguments, Contents contents) {
  const Table::Lock lock(table_);
  for (const std::uint32_t i : which) {
    for_each_tensor(arguments[i], [&](std::size_t, const at::Tensor& tensor) {
      c10::StorageImpl* storage = storage_of(tensor);
      Cell* cell = storage == nullptr ? nullptr : cell_of(storage);
      if (cell != nullptr && cell->value->resident) table_.release(*cell, /*lost=*/contents == Contents::kLost);
    });
  }
}

c10::SmallVector<Mode::Fresh, 4> Mode::fresh_storages(const Made& made, std::span<const c10::IValue> results) const {
  c10::SmallVector<Fresh, 4> fresh;
  const c10::DeleterFnPtr deleter = c10::GetAllocator(device_.type())->raw_deleter();
  std::size_t count = 0;
  const auto look = [&](const at::Tensor& tensor) {
    const std::size_t index = count++;
    c10::StorageImpl* storage = storage_of(tensor);
    if (storage == nullptr || !is_plain(tensor, device_)) return;
    if (static_cast<std::int64_t>(storage->nbytes()) < std::max<std::int64_t>(1, options_.smallest_bytes)) return;
    if (storage->_mutable_data_ptr_no_checks().get_deleter() != deleter) return;  // tracked, or not the allocator's
    if (std::ranges::find(fresh, storage, &Fresh::storage) == fresh.end()) fresh.push_back({index, storage});
  };
  for (const c10::IValue& result : results) {
    for_each_tensor(result, [&](std::size_t, const at::Tensor& tensor) { look(tensor); });
  }
  if (fresh.empty()) return fresh;
  for (const std::uint32_t i : made.card.tensors) {
    for_each_tensor(made.arguments[i], [&](std::size_t, const at::Tensor& tensor) {
      const c10::StorageImpl* storage = storage_of(tensor);
      fresh.erase(std::remove_if(fresh.begin(), fresh.end(), [&](const Fresh& f) { return f.storage == storage; }),
                  fresh.end());
    });
  }
  return fresh;
}

// Nothing if a plain tensor cannot stand for one of the arguments.
Ref<Record> Mode::record_of(Made& made) {
  std::vector<Use> uses;
  for (const std::uint32_t i : made.card.tensors) {
    const bool written = std::ranges::find(made.card.written, i) != made.card.written.end();
    const bool statistics = std::ranges::find(made.answer.statistics, i) != made.answer.statistics.end();
    bool plain = true;
    bool any = false;
    for_each_tensor(made.arguments[i], [&](std::size_t element, const at::Tensor& tensor) {
      if (!tensor.defined() || tensor.unsafeGetTensorImpl()->is_wrapped_number()) return;
      if (made.arguments[i].isTensor() && is_number_on_host(tensor, device_)) {
        made.arguments[i] = copy_of_number(tensor);
        return;
      }
      any = true;
      plain = plain && is_plain(tensor, device_);
      if (!plain || statistics) return;
      c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
      const Cell* cell = cell_of(storage);
      uses.push_back({.value = cell == nullptr ? table_.root(*storage) : cell->value,
                      .argument = i,
                      .element = static_cast<std::uint32_t>(element),
                      .written = written,
                      .layout = layout_of(tensor)});
    });
    if (!plain) return {};
    if (any) made.arguments[i] = without_tensors(made.arguments[i]);
  }
  Ref<Record> record(new Record{.op = made.op,
                                .keys = made.below,
                                .grad_mode = at::GradMode::is_enabled(),
                                .arguments = std::move(made.arguments),
                                .uses = std::move(uses),
                                .cost_ns = static_cast<double>(std::max<std::int64_t>(1, made.cost_ns)),
                                .generator_state = std::move(made.generator_state)});
  Table::link(*record);
  return record;
}

c10::SmallVector<Value*, 4> Mode::note(Made& made, std::span<const c10::IValue> results) {
  ++calls_;
  call_ns_ += made.cost_ns;
  step_call_ns_ += made.cost_ns;
  const auto fresh = fresh_storages(made, results);
  c10::SmallVector<Cell*, 4> written;
  for (const std::uint32_t i : made.card.written) {
    for_each_tensor(made.arguments[i], [&](std::size_t, const at::Tensor& tensor) {
      c10::StorageImpl* storage = storage_of(tensor);
      Cell* cell = storage == nullptr ? nullptr : cell_of(storage);
      if (cell != nullptr && std::ranges::find(written, cell) == written.end()) written.push_back(cell);
    });
  }
  if (fresh.empty() && written.empty()) return {};
  bool repeatable = made.answer.repeatable;
  for (const Cell* cell : written) repeatable = repeatable && cell->value->version < kMostVersions;
  const Ref<Record> record = repeatable ? record_of(made) : Ref<Record>();
  if (!record) {
    for (Cell* cell : written) table_.release(*cell, /*lost=*/true);
    return {};
  }
  const int backward = watch_backward();
  c10::SmallVector<Value*, 4> values;
  const auto add = [&](Value& value) {
    values.push_back(&value);
    value.last_read_ns = made.end_ns;
    value.backward = backward;
  };
  for (const Fresh& f : fresh) add(table_.track(*f.storage, record, {.index = f.index}));
  for (Cell* cell : written) {
    const auto use = std::ranges::find_if(record->uses, [&](const Use& u) { return u.value->cell == cell; });
    const auto index = static_cast<std::size_t>(use - record->uses.begin());
    add(table_.supersede(*cell, record, {.is_use = true, .index = index}));
  }
  return values;
}

// What a backward pass leaves behind are gradients, which are kept from step to step and must not keep how they came
// about. Returns the number of the pass; 0: there is none, or others may go through what it makes.
int Mode::watch_backward() {
  const int task = torch::autograd::get_current_graph_task_id();
  if (task == -1) return 0;
  if (watched_tasks_.insert(task).second) {
    const bool keeps_graph = torch::autograd::get_current_graph_task_keep_graph();
    torch::autograd::Engine::get_default_engine().queue_callback([task, keeps_graph] {
      if (Mode* mode = active_) mode->backward_ended(task, keeps_graph);
    });
  }
  return at::GradMode::is_enabled() ? 0 : task + 1;
}

void Mode::backward_ended(int task, bool keeps_graph) {
  std::vector<Ref<Value>> gradients;
  {
    const Table::Lock lock(table_);
    watched_tasks_.erase(task);
    for (const Cell* cell : table_.cells()) {
      if (cell->value->backward == task + 1) gradients.push_back(cell->value);
    }
  }
  if (!keeps_graph) {
    warn_of_thrashing();
    follower_.end_step();
    step_call_ns_ = 0;
    step_recompute_ns_ = restorer_.cost_ns();
  }
  restorer_.make_final(std::move(gradients));
}

void Mode::accessed_by_hand(c10::StorageImpl* storage) {
  Held held(table_);
  std::vector<Ref<Value>> values;
  {
    const Table::Lock lock(table_);
    const Cell* cell = cell_of(storage);
    Value* found = cell == nullptr ? table_.known_root(storage) : cell->value.get();
    // A call that is running takes addresses of what it reads.
    if (found == nullptr || found->locks > 0 || (cell == nullptr && running_ > 0)) return;
    if (cell == nullptr) {
      held.hold(found);
    } else {
      values.emplace_back(found);
    }
  }
  if (held.value()) {
    restorer_.make_independent_of(held.value());
  } else {
    restorer_.make_final(std::move(values));
  }
}

}  // namespace reprise::online
