#include "runtime/online/values.h"

#include <c10/core/TensorImpl.h>
#include <torch/version.h>

#include <algorithm>
#include <concepts>
#include <unordered_set>

#include "reprise/error.h"

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
// Libtorch can mark a storage, so that taking its address is an error, but before 2.13 it cannot take the mark away.
// The mark is private; an explicit instantiation may name it nevertheless.
namespace c10_storage {
using Mark = bool c10::StorageImpl::*;
Mark no_access();
template <Mark mark>
struct Named {
  friend Mark no_access() { return mark; }
};
template struct Named<&c10::StorageImpl::throw_on_immutable_data_ptr_>;
}  // namespace c10_storage
#endif

namespace reprise::online {
namespace {

ByHand by_hand = nullptr;

[[maybe_unused]] void accessed_by_hand(c10::StorageImpl* storage) {
  if (by_hand != nullptr) by_hand(storage);
}

template <typename Storage>
concept TellsOfAccess = requires(Storage& storage) {
  storage.set_materializer(&accessed_by_hand);
  { storage.has_materializer() } -> std::convertible_to<bool>;
};

constexpr bool kTellsOfAccess = TellsOfAccess<c10::StorageImpl>;
constexpr const char* kNoAccess =
    "the address of a tensor was taken that the online mode may take away and compute again. Libtorch 2.13 and later "
    "tell of this, and such a tensor then stays; with this release, copy it first, into memory that is not a result: "
    "torch.empty(x.shape, dtype=x.dtype).copy_(x), or x.cpu() from another device";

[[maybe_unused]] void forbid_access([[maybe_unused]] c10::StorageImpl& storage, [[maybe_unused]] bool forbid) {
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
  bool& mark = storage.*c10_storage::no_access();
  if (mark == forbid) return;
  auto& message = storage.get_extra_meta().custom_data_ptr_error_msg_;
  if (!message) message = kNoAccess;
  mark = forbid;
  // Whoever puts a DataPtr into a storage makes it look at its marks.
  c10::DataPtr data = std::move(storage._mutable_data_ptr_no_checks());
  storage.set_data_ptr_noswap(std::move(data));
#endif
}

template <typename Storage>
void arm_storage(Storage& storage) {
  if constexpr (TellsOfAccess<Storage>) {
    if (!storage.has_materializer()) storage.set_materializer(&accessed_by_hand);
  } else {
    forbid_access(storage, true);
  }
}

template <typename Storage>
void disarm_storage(Storage& storage) {
  if constexpr (TellsOfAccess<Storage>) {
    storage.clear_materializer();
  } else {
    forbid_access(storage, false);
  }
}

// Puts other memory under a storage whose DataPtr has the cell as its context, without telling the cell of a death.
void put_under(c10::StorageImpl& storage, Cell& cell, void* data) {
  c10::DataPtr& current = storage._mutable_data_ptr_no_checks();
  const c10::Device device = current.device();
  current.release_context();
  storage.set_data_ptr_noswap({data, &cell, &Cell::storage_died, device});
}

void unite(Ref<AbsentSet>& set, const Value& neighbour) {
  if (neighbour.resident || !neighbour.absent_with) return;
  AbsentSet* a = root_of(set.get());
  AbsentSet* b = root_of(neighbour.absent_with.get());
  if (a == b) return;
  b->cost_ns += a->cost_ns;
  a->parent = Ref<AbsentSet>(b);
}

}  // namespace

void set_by_hand(ByHand handler) { by_hand = handler; }
bool tells_of_access() { return kTellsOfAccess; }

void discard(AbsentSet* set) {
  // A chain of parents may be long.
  Ref<AbsentSet> next = std::move(set->parent);
  delete set;
  while (next && next->refs == 1) {
    Ref<AbsentSet> after = std::move(next->parent);
    next = std::move(after);
  }
}

AbsentSet* root_of(AbsentSet* set) {
  while (set->parent) {
    if (set->parent->parent) set->parent = set->parent->parent;
    set = set->parent.get();
  }
  return set;
}

Layout layout_of(const at::Tensor& tensor) {
  Layout layout{.offset = tensor.storage_offset(), .dtype = tensor.dtype(), .keys = tensor.key_set() - c10::python_ks};
  layout.shape.set_sizes(tensor.sizes());
  layout.shape.set_strides(tensor.strides());
  return layout;
}

at::Tensor tensor_of(c10::Storage storage, const Layout& layout) {
  auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage), layout.keys, layout.dtype);
  impl->set_sizes_and_strides(layout.shape.sizes_arrayref(), layout.shape.strides_arrayref(), layout.offset);
  return at::Tensor(std::move(impl));
}

// Values and records die one after the other, not inside each other: a chain of them may be long.
void discard(Value* value) {
  Table& table = *value->table;
  table.dying_values_.push_back(value);
  table.bury();
}

void discard(Record* record) {
  Table& table = Table::instance();
  table.dying_records_.push_back(record);
  table.bury();
}

void Table::bury() {
  if (std::exchange(burying_, true)) return;
  while (!dying_values_.empty() || !dying_records_.empty()) {
    if (!dying_values_.empty()) {
      Value* value = dying_values_.back();
      dying_values_.pop_back();
      destroy(value);
      continue;
    }
    Record* record = dying_records_.back();
    dying_records_.pop_back();
    for (Use& use : record->uses) {
      if (use.link == nullptr) continue;
      *use.link = use.next;
      if (use.next != nullptr) use.next->link = use.link;
    }
    delete record;
  }
  burying_ = false;
}

void Table::begin_step() {
  for (Value* value : of_step_) {
    if (value == nullptr) continue;
    value->id = kNotInStep;
    value->forget_script();
  }
  of_step_.clear();
}

void Table::enlist(Value& value) {
  value.id = static_cast<std::uint32_t>(of_step_.size());
  of_step_.push_back(&value);
}

void Table::destroy(Value* value) {
  if (value->id != kNotInStep) of_step_[value->id] = nullptr;
  if (value->maker) {
    for (Output& output : value->maker->outputs) {
      if (output.value == value) output.value = nullptr;
    }
    if (value->resident) {
      remove_candidate(*value);
    } else {
      root_of(value->absent_with.get())->cost_ns -= value->maker->cost_ns;
    }
  } else if (value->held) {
    const auto found = roots_.find(value->held.get());
    if (found != roots_.end() && found->second == value) roots_.erase(found);
    if (value->armed && value->held.use_count() > 1 && cell_of(value->held.get()) == nullptr) {
      disarm_storage(*value->held);
    }
  }
  if (value->held) unheld_.push_back(std::move(value->held));
  delete value;
}

Table::Lock::~Lock() {
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> unheld;
  if (--table_.depth_ == 0) unheld.swap(table_.unheld_);
  table_.mutex_.unlock();
}

Table& Table::instance() {
  static auto* table = new Table;
  return *table;
}

Value& Table::new_value(const Ref<Record>& maker, Output output, std::int64_t bytes) {
  auto* value = new Value;
  value->bytes = bytes;
  value->number = next_++;
  value->table = this;
  value->maker = maker;
  output.value = value;
  maker->outputs.push_back(output);
  value->place = candidates_.size();
  candidates_.push_back(value);
  return *value;
}

Value& Table::track(c10::StorageImpl& storage, const Ref<Record>& maker, Output output) {
  Value& value = new_value(maker, output, static_cast<std::int64_t>(storage.nbytes()));
  c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
  void* address = data.get();
  const c10::Device device = data.device();
  auto* cell = new Cell{.table = this,
                        .value = Ref<Value>(&value),
                        .data = std::move(data),
                        .storage = c10::weak_intrusive_ptr<c10::StorageImpl>(
                            c10::intrusive_ptr<c10::StorageImpl>::unsafe_reclaim_from_nonowning(&storage)),
                        .place = cells_.size()};
  cells_.push_back(cell);
  value.cell = cell;
  storage.set_data_ptr_noswap({address, cell, &Cell::storage_died, device});
  arm(storage, value);
  return value;
}

Value& Table::supersede(Cell& cell, const Ref<Record>& maker, Output output) {
  const Ref<Value> old = cell.value;
  Value& value = new_value(maker, output, old->bytes);
  value.version = old->version + 1;
  old->cell = nullptr;
  value.cell = &cell;
  cell.value = Ref<Value>(&value);
  // What a script keeps was copied before the write.
  if (!(old->kept && old->held)) become_absent(*old);
  if (const c10::intrusive_ptr<c10::StorageImpl> storage = cell.storage.lock()) arm(*storage, value);
  return value;
}

void Table::forget(Cell& cell) {
  cells_[cell.place] = cells_.back();
  cells_[cell.place]->place = cell.place;
  cells_.pop_back();
}

void Table::release(Cell& cell, bool lost) {
  const Ref<Value> value = cell.value;
  const c10::intrusive_ptr<c10::StorageImpl> storage = cell.storage.lock();
  if (!storage) return;  // it is about to tell of its death
  forget(cell);
  c10::DataPtr& current = storage->_mutable_data_ptr_no_checks();
  const c10::Device device = current.device();
  current.release_context();
  if (value->resident) {
    storage->set_data_ptr_noswap(std::move(cell.data));
  } else {
    evicted_bytes_ -= value->bytes;
    storage->set_data_ptr_noswap({nullptr, device});
  }
  disarm_storage(*storage);
  value->cell = nullptr;
  if (lost && value->resident) {
    become_absent(*value);
  } else if (value->resident) {
    make_root(*value);
    if (value->readers != nullptr) {
      value->held = storage;
      roots_.emplace(storage.get(), value.get());
      arm(*storage, *value);
      value->armed = kTellsOfAccess;
    }
  }
  delete &cell;
}

void Table::make_root(Value& value) {
  if (value.is_root()) return;
  remove_candidate(value);
  for (Output& output : value.maker->outputs) {
    if (output.value == &value) output.value = nullptr;
  }
  value.maker = {};
}

Ref<Value> Table::root(c10::StorageImpl& storage) {
  Value*& known = roots_[&storage];
  if (known == nullptr) {
    known = new Value;
    known->bytes = static_cast<std::int64_t>(storage.nbytes());
    known->number = next_++;
    known->table = this;
    known->held = c10::intrusive_ptr<c10::StorageImpl>::unsafe_reclaim_from_nonowning(&storage);
  }
  arm(storage, *known);
  known->armed = kTellsOfAccess;
  return Ref<Value>(known);
}

Value* Table::known_root(c10::StorageImpl* storage) {
  const auto found = roots_.find(storage);
  return found == roots_.end() ? nullptr : found->second;
}

void Table::remove_candidate(Value& value) {
  candidates_[value.place] = candidates_.back();
  candidates_[value.place]->place = value.place;
  candidates_.pop_back();
}

void Table::become_absent(Value& value) {
  remove_candidate(value);
  value.resident = false;
  if (value.held) unheld_.push_back(std::move(value.held));
  value.absent_with = Ref<AbsentSet>(new AbsentSet{.cost_ns = value.maker->cost_ns});
  for (const Use& use : value.maker->uses) unite(value.absent_with, *use.value);
  for (const Use* use = value.readers; use != nullptr; use = use->next) {
    for (const Output& output : use->reader->outputs) {
      if (output.value != nullptr && output.value != &value) unite(value.absent_with, *output.value);
    }
  }
}

void Table::become_resident(Value& value) {
  root_of(value.absent_with.get())->cost_ns -= value.maker->cost_ns;
  value.absent_with = {};
  value.resident = true;
  value.place = candidates_.size();
  candidates_.push_back(&value);
}

void Table::evict(Value& value) {
  taken_bytes_ += value.bytes;
  if (value.cell != nullptr) {
    Cell& cell = *value.cell;
    // Another thread may be about to tell of the storage's death.
    if (const c10::intrusive_ptr<c10::StorageImpl> storage = cell.storage.lock()) {
      put_under(*storage, cell, nullptr);
      arm(*storage, value);
    }
    evicted_bytes_ += value.bytes;
    cell.data.clear();
  }
  // A ghost's memory has to go now, not after the lock.
  const c10::intrusive_ptr<c10::StorageImpl> ghost = std::move(value.held);
  value.held.reset();
  become_absent(value);
}

void Table::restore(Value& value, c10::intrusive_ptr<c10::StorageImpl> storage) {
  if (static_cast<std::int64_t>(storage->nbytes()) != value.bytes) {
    throw InternalError("a call that was made again returned " + std::to_string(storage->nbytes()) +
                        " bytes instead of " + std::to_string(value.bytes));
  }
  const c10::intrusive_ptr<c10::StorageImpl> own =
      value.cell == nullptr ? c10::intrusive_ptr<c10::StorageImpl>() : value.cell->storage.lock();
  if (value.cell != nullptr) evicted_bytes_ -= value.bytes;
  if (own) {
    value.cell->data = std::move(storage->_mutable_data_ptr_no_checks());
    put_under(*own, *value.cell, value.cell->data.get());
    arm(*own, value);
  } else {
    value.held = std::move(storage);
  }
  become_resident(value);
}

c10::Storage Table::storage_of(const Value& value) {
  c10::intrusive_ptr<c10::StorageImpl> storage = value.held ? value.held : value.cell->storage.lock();
  if (!storage) throw InternalError("a value that a call reads is gone");
  return c10::Storage(std::move(storage));
}

void Table::arm(c10::StorageImpl& storage, const Value& value) {
  if (kTellsOfAccess || (value.locks == 0 && !value.is_root())) arm_storage(storage);
}

void Table::lock(Value& value) {
  if (value.locks++ > 0 || kTellsOfAccess || value.cell == nullptr) return;
  if (const c10::intrusive_ptr<c10::StorageImpl> storage = value.cell->storage.lock()) disarm_storage(*storage);
}

void Table::unlock(Value& value) {
  if (--value.locks > 0 || value.cell == nullptr) return;
  if (const c10::intrusive_ptr<c10::StorageImpl> storage = value.cell->storage.lock()) arm(*storage, value);
}

void Table::link(Record& record) {
  for (Use& use : record.uses) {
    Value& value = *use.value;
    use.reader = &record;
    use.next = value.readers;
    use.link = &value.readers;
    if (use.next != nullptr) use.next->link = &use.next;
    value.readers = &use;
  }
}

std::vector<Value*> held_dependents(const Value& value) {
  std::vector<Value*> held;
  std::unordered_set<const Value*> seen;
  std::vector<const Value*> open{&value};
  while (!open.empty()) {
    const Value* next = open.back();
    open.pop_back();
    for (const Use* use = next->readers; use != nullptr; use = use->next) {
      for (const Output& output : use->reader->outputs) {
        if (output.value == nullptr || !seen.insert(output.value).second) continue;
        if (output.value->cell != nullptr) {
          held.push_back(output.value);
        } else {
          open.push_back(output.value);
        }
      }
    }
  }
  return held;
}

void Cell::storage_died(void* cell) {
  auto* dead = static_cast<Cell*>(cell);
  const Table::Lock lock(*dead->table);
  dead->table->forget(*dead);
  {
    const Ref<Value> value = std::move(dead->value);
    value->cell = nullptr;
    if (!value->resident) dead->table->evicted_bytes_ -= value->bytes;
    // Without readers it dies here.
    const bool stays = value->resident && value->maker && value->refs > 1;
    if (stays && value->kept && !value->held) {
      value->held = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), value->bytes,
                                                          std::move(dead->data), /*allocator=*/nullptr,
                                                          /*resizable=*/false);
    }
    dead->data.clear();
    if (stays && !value->kept) dead->table->become_absent(*value);
  }
  delete dead;
}

}  // namespace reprise::online
