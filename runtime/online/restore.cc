#include "runtime/online/restore.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "reprise/error.h"
#include "runtime/device/generator.h"
#include "runtime/online/storage_copy.h"
#include "runtime/online/thread.h"
#include "runtime/program/tensor_memory.h"

namespace reprise::online {
namespace {

using StoragePtr = c10::intrusive_ptr<c10::StorageImpl>;

// Values on the way back, each waiting for those after it. What a value is computed from is marked while it waits, and
// locked while its call is made.
class Way {
 public:
  explicit Way(Table& table) : table_(table) {}
  ~Way() {
    const Table::Lock lock(table_);
    while (!frames_.empty()) leave();
  }
  Way(const Way&) = delete;
  Way& operator=(const Way&) = delete;

  void enter(Value& value) { frames_.push_back({Ref<Value>(&value), {}}); }

  // The next call to make, with everything it reads at hand; nothing: all are back.
  struct Step {
    Record* record = nullptr;
    Value* wanted = nullptr;
  };
  [[nodiscard]] std::optional<Step> next() {
    const Table::Lock lock(table_);
    while (!frames_.empty()) {
      Frame& frame = frames_.back();
      if (frame.value->resident) {
        leave();
        continue;
      }
      if (!frame.record) {
        frame.record = frame.value->maker;
        for (const Use& use : frame.record->uses) ++use.value->waits;
      }
      Value* missing = oldest_missing(*frame.record);
      if (missing == nullptr) {
        for (const Use& use : frame.record->uses) Table::lock(*use.value);
        frame.runs = true;
        return Step{frame.record.get(), frame.value.get()};
      }
      enter(*missing);
    }
    return std::nullopt;
  }

 private:
  struct Frame {
    Ref<Value> value;
    Ref<Record> record;  // once what it reads is marked
    bool runs = false;
  };
  void leave() {
    const Frame& frame = frames_.back();
    if (frame.record) {
      for (const Use& use : frame.record->uses) {
        --use.value->waits;
        if (frame.runs) Table::unlock(*use.value);
      }
    }
    frames_.pop_back();
  }
  // The way back to the oldest may be long and take much memory, while the others would only lie there.
  [[nodiscard]] static Value* oldest_missing(const Record& record) {
    Value* oldest = nullptr;
    for (const Use& use : record.uses) {
      if (use.value->resident) continue;
      if (oldest == nullptr || use.value->number < oldest->number) oldest = use.value.get();
    }
    return oldest;
  }

  Table& table_;
  std::vector<Frame> frames_;
};

// The memory that the arguments of a repeated call see. What the call writes over is its own: a ghost gives its memory
// away, and what others wait for is copied.
class ArgumentMemory {
 public:
  ArgumentMemory(Table& table, Record& record) : table_(table), record_(record) {
    const Table::Lock lock(table_);
    for (const Use& use : record.uses) {
      if (use.written && find(use.value.get()) == nullptr) own_.push_back({use.value, {}, false});
    }
    for (Own& own : own_) {
      const auto here =
          std::ranges::count(record.uses, own.value.get(), [](const Use& use) { return use.value.get(); });
      own.storage = Table::storage_of(*own.value);
      // This call has locked it and waits for it.
      own.consumed = own.value->is_ghost() && !own.value->kept &&
                     own.value->locks + own.value->waits == 2 * static_cast<int>(here);
    }
  }
  ~ArgumentMemory() {
    const Table::Lock lock(table_);
    // What was given away may have been written over, even if the call failed.
    for (Own& own : own_) {
      if (own.consumed && began_ && own.value->resident) table_.lose(*own.value);
    }
    own_.clear();
  }
  ArgumentMemory(const ArgumentMemory&) = delete;
  ArgumentMemory& operator=(const ArgumentMemory&) = delete;

  [[nodiscard]] torch::jit::Stack stack() {
    for (Own& own : own_) {
      if (!own.consumed) own.storage = c10::Storage(copy_of(own.storage));
    }
    const Table::Lock lock(table_);
    torch::jit::Stack stack = record_.arguments;
    for (c10::IValue& argument : stack) {
      if (argument.isTensorList()) argument = argument.toTensorList().copy();
      if (argument.isOptionalTensorList()) argument = argument.toList().copy();
    }
    for (const Use& use : record_.uses) {
      const Own* own = find(use.value.get());
      put(stack[use.argument], use.element,
          tensor_of(own != nullptr ? own->storage : Table::storage_of(*use.value), use.layout));
    }
    began_ = true;
    return stack;
  }
  [[nodiscard]] StoragePtr written(std::size_t use) {
    const Own* own = find(record_.uses[use].value.get());
    return StoragePtr::unsafe_reclaim_from_nonowning(own->storage.unsafeGetStorageImpl());
  }

 private:
  struct Own {
    Ref<Value> value;
    c10::Storage storage;
    bool consumed = false;
  };
  [[nodiscard]] Own* find(const Value* value) {
    const auto found = std::ranges::find(own_, value, [](const Own& own) { return own.value.get(); });
    return found == own_.end() ? nullptr : &*found;
  }
  static void put(c10::IValue& argument, std::size_t element, at::Tensor tensor) {
    if (argument.isTensorList()) {
      argument.toTensorList().set(element, std::move(tensor));
    } else if (argument.isOptionalTensorList()) {
      argument.toList().set(element, c10::IValue(std::move(tensor)));
    } else {
      argument = std::move(tensor);
    }
  }

  Table& table_;
  Record& record_;
  std::vector<Own> own_;
  bool began_ = false;
};

void call_again(const Record& record, c10::Device device, torch::jit::Stack& stack) {
  const Inside inside;
  std::optional<GeneratorReplay> random;
  if (record.generator_state.defined()) random.emplace(device, record.generator_state);
  const at::AutoGradMode grad_mode(record.grad_mode);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_modes(c10::python_ks);
  record.op.redispatchBoxed(record.keys, &stack);
}

}  // namespace

void Restorer::restore(Value& value) {
  const std::lock_guard one_at_a_time(mutex_);
  const OnStream on_own_stream(stream_);
  Way way(table_);
  {
    const Table::Lock lock(table_);
    way.enter(value);
    taken_while_waiting_ = 0;
  }
  while (const auto step = way.next()) run(*step->record, *step->wanted);
}

void Restorer::run(Record& record, const Value& wanted) {
  ArgumentMemory memory(table_, record);
  torch::jit::Stack stack;
  this_thread.refusal.clear();
  try {
    stack = memory.stack();
    call_again(record, device_, stack);
  } catch (const c10::OutOfMemoryError&) {
    if (this_thread.refusal.empty()) throw;
    refuse_(std::exchange(this_thread.refusal, {}));
  }
  const std::vector<at::Tensor> results = tensors_of(stack);
  const Table::Lock lock(table_);
  ++calls_;
  cost_ns_ += record.cost_ns;
  for (const Output& output : record.outputs) {
    Value* value = output.value;
    if (value == nullptr || value->resident) continue;
    if (value != &wanted && value->cell == nullptr && !value->kept) continue;
    table_.restore(*value, output.is_use ? memory.written(output.index)
                                         : StoragePtr::unsafe_reclaim_from_nonowning(
                                               results.at(output.index).storage().unsafeGetStorageImpl()));
  }
  if (!wanted.resident) throw InternalError("a call that was made again did not return what it was made for");
}

void Restorer::make_final(std::vector<Ref<Value>> values) {
  const std::lock_guard one_at_a_time(mutex_);
  std::ranges::sort(values, {}, [](const Ref<Value>& value) { return value->number; });
  for (const Ref<Value>& value : values) {
    {
      const Table::Lock lock(table_);
      if (value->cell == nullptr) continue;
      Table::lock(*value);
    }
    try {
      if (!value->resident) restore(*value);
    } catch (...) {
      const Table::Lock lock(table_);
      Table::unlock(*value);
      values.clear();
      throw;
    }
    const Table::Lock lock(table_);
    Table::unlock(*value);
    if (value->cell != nullptr) table_.release(*value->cell, /*lost=*/false);
  }
  const Table::Lock lock(table_);
  values.clear();
}

void Restorer::make_independent_of(const Ref<Value>& root) {
  std::vector<Ref<Value>> held;
  {
    const Table::Lock lock(table_);
    for (Value* value : held_dependents(*root)) held.emplace_back(value);
  }
  make_final(std::move(held));
}

}  // namespace reprise::online
