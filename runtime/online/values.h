// What the online mode knows of memory: values, the calls that made them, and the storages that hold them.
//
//   storage of the program --> Cell --> Value --> Record --> Value ...
//                                        (made by)   (reads)
//
// A Value is one version of the contents of one storage. A Record is a call that made values and can be made again. A
// value without a record is a root: it was there before, or may not be computed again. Records hold what they read,
// values hold their record, and cells hold the current value of a storage that the program holds, so reference counts
// say which records may still be needed. Roots hold the storage itself.
//
// Storages of the program are not held. A tracked storage has a DataPtr whose context is its Cell: that finds the value
// without a table, and tells of the death of the storage. The real memory lies in the cell. A value that is computed
// again although no storage holds it, because another is computed from it, is a ghost and has a storage of its own.
//
// Everything here is guarded by the lock of the table.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/SizesAndStrides.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace reprise::online {

struct Cell;
struct Record;
struct Value;
class Table;

// A plain count of references, changed under the table's lock only.
template <typename T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* target) : target_(target) {
    if (target_ != nullptr) ++target_->refs;
  }
  Ref(const Ref& other) : Ref(other.target_) {}
  Ref(Ref&& other) noexcept : target_(std::exchange(other.target_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(target_, other.target_);
    return *this;
  }
  ~Ref() {
    if (target_ != nullptr && --target_->refs == 0) discard(target_);
  }
  [[nodiscard]] T* get() const { return target_; }
  T* operator->() const { return target_; }
  T& operator*() const { return *target_; }
  explicit operator bool() const { return target_ != nullptr; }

 private:
  T* target_ = nullptr;
};

// Absent values that are computed from each other: a union-find with the sum of their costs at the root.
struct AbsentSet {
  int refs = 0;
  double cost_ns = 0;
  Ref<AbsentSet> parent;
};
void discard(AbsentSet* set);
[[nodiscard]] AbsentSet* root_of(AbsentSet* set);

// How a call sees memory.
struct Layout {
  c10::impl::SizesAndStrides shape;
  std::int64_t offset = 0;
  caffe2::TypeMeta dtype;
  c10::DispatchKeySet keys;  // also says whether it is conjugated or negated
};
[[nodiscard]] Layout layout_of(const at::Tensor& tensor);
[[nodiscard]] at::Tensor tensor_of(c10::Storage storage, const Layout& layout);

// A tensor among the arguments of a record.
struct Use {
  Ref<Value> value;
  std::uint32_t argument = 0;
  std::uint32_t element = 0;  // in an argument that is a list
  bool written = false;
  Layout layout;
  Record* reader = nullptr;
  Use* next = nullptr;  // in the list of those who read the value
  Use** link = nullptr;
};

struct Output {
  Value* value = nullptr;  // nullptr once it is gone
  bool is_use = false;     // whether the memory is that of a written argument
  std::size_t index = 0;   // in the uses, or among the tensors that the call returns
};

struct Record {
  int refs = 0;
  c10::OperatorHandle op;
  c10::DispatchKeySet keys;
  bool grad_mode = false;
  std::vector<c10::IValue> arguments;  // without the tensors of `uses`; a list keeps its length
  std::vector<Use> uses;
  std::vector<Output> outputs;
  double cost_ns = 0;
  at::Tensor generator_state;  // before a random call
};
void discard(Record* record);

constexpr std::uint32_t kNotInStep = 0xFFFFFFFFU;

struct Value {
  int refs = 0;
  int locks = 0;  // calls that read it right now
  int waits = 0;  // calls that will be made again and read it then
  std::int64_t bytes = 0;
  std::uint64_t number = 0;  // in the order of making
  int version = 0;           // how often its memory was written over
  int backward = 0;          // the backward pass that made it; 0: none
  bool resident = true;
  bool armed = false;                   // root: whether an access by hand is noticed
  bool kept = false;                    // a script that is followed wants it to stay
  bool spent = false;                   // such a script knows that nobody reads it any more
  std::uint32_t again_at = kNotInStep;  // the call before which such a script makes it again, if it was taken away
  double saved_ns_per_byte = 0;         // if it was not
  std::uint32_t id = kNotInStep;        // among the values of the running step
  Table* table = nullptr;
  Ref<Record> maker;                            // none: a root
  Cell* cell = nullptr;                         // of the storage whose current value it is
  c10::intrusive_ptr<c10::StorageImpl> held{};  // of a root or a ghost
  std::int64_t last_read_ns = 0;                // by the program
  std::size_t place = 0;                        // among the table's candidates
  Ref<AbsentSet> absent_with;
  Use* readers = nullptr;

  void forget_script() {
    kept = spent = false;
    again_at = kNotInStep;
  }
  [[nodiscard]] bool is_root() const { return !maker; }
  [[nodiscard]] bool is_ghost() const { return resident && maker && cell == nullptr; }
};
void discard(Value* value);

struct Cell {
  Table* table = nullptr;
  Ref<Value> value;
  c10::DataPtr data;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  std::size_t place = 0;  // among the table's cells

  static void storage_died(void* cell);
};

// The cell of a storage, or nullptr if it is not tracked.
[[nodiscard]] inline Cell* cell_of(c10::StorageImpl* storage) {
  const c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  return data.get_deleter() == &Cell::storage_died ? static_cast<Cell*>(data.get_context()) : nullptr;
}

class Table {
 public:
  // Whoever touches anything here has one. What dies meanwhile and may run code of others is freed after the outermost.
  class Lock {
   public:
    explicit Lock(Table& table) : table_(table) {
      table_.mutex_.lock();
      ++table_.depth_;
    }
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    Table& table_;
  };

  // Begins to track a storage: it holds a new value that the record made.
  Value& track(c10::StorageImpl& storage, const Ref<Record>& maker, Output output);
  // The storage of the cell was written: it holds a new value, and the old one is absent.
  Value& supersede(Cell& cell, const Ref<Record>& maker, Output output);
  // Ends tracking and gives the storage its memory back. The value becomes a root, or if `lost` it is absent from now
  // on. A value that is absent stays absent, and its storage is left without memory.
  void release(Cell& cell, bool lost);
  // A value that some record reads and no record made.
  [[nodiscard]] Ref<Value> root(c10::StorageImpl& storage);
  // The same if there is one already.
  [[nodiscard]] Value* known_root(c10::StorageImpl* storage);
  // The value is not computed again any more.
  void make_root(Value& value);

  void evict(Value& value);
  // Gives an absent value its memory back, out of a storage that holds it and is not used otherwise.
  void restore(Value& value, c10::intrusive_ptr<c10::StorageImpl> storage);
  // A ghost whose memory was written over.
  void lose(Value& value) { become_absent(value); }
  [[nodiscard]] static c10::Storage storage_of(const Value& value);
  // While it is locked, a call may take its address and it is not taken away. What is not locked tells of accesses by
  // hand, or, where libtorch cannot do that, does not allow them.
  static void lock(Value& value);
  static void unlock(Value& value);

  // Adds a record's reads to the lists of its values, once the record is complete.
  static void link(Record& record);

  // Values of the running step have ids that count up from 0, if somebody gives them.
  void begin_step();
  void enlist(Value& value);
  [[nodiscard]] std::size_t enlisted() const { return of_step_.size(); }
  [[nodiscard]] Value* of_step(std::uint32_t id) const { return of_step_[id]; }  // nullptr once it is gone

  // Resident values that can be computed again.
  [[nodiscard]] const std::vector<Value*>& candidates() const { return candidates_; }
  [[nodiscard]] const std::vector<Cell*>& cells() const { return cells_; }
  [[nodiscard]] const std::unordered_map<c10::StorageImpl*, Value*>& roots() const { return roots_; }
  // What absent values would take that the program holds.
  [[nodiscard]] std::int64_t evicted_bytes() const { return evicted_bytes_; }
  // What was taken away, ever.
  [[nodiscard]] std::int64_t taken_bytes() const { return taken_bytes_; }

  // Lives as long as the process, because storages may outlive every online mode.
  [[nodiscard]] static Table& instance();

 private:
  friend void discard(Value* value);
  friend void discard(Record* record);
  friend struct Cell;

  Value& new_value(const Ref<Record>& maker, Output output, std::int64_t bytes);
  static void arm(c10::StorageImpl& storage, const Value& value);
  void become_absent(Value& value);
  void become_resident(Value& value);
  void remove_candidate(Value& value);
  void forget(Cell& cell);
  void destroy(Value* value);
  void bury();

  std::recursive_mutex mutex_;
  int depth_ = 0;
  bool burying_ = false;
  std::vector<Value*> candidates_;
  std::vector<Cell*> cells_;
  std::unordered_map<c10::StorageImpl*, Value*> roots_;
  std::vector<Value*> dying_values_;
  std::vector<Record*> dying_records_;
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> unheld_;  // let go after the lock
  std::uint64_t next_ = 0;
  std::vector<Value*> of_step_;  // by id
  std::int64_t evicted_bytes_ = 0;
  std::int64_t taken_bytes_ = 0;
};

// What the program holds and that is computed from the value, with no other such value in between.
[[nodiscard]] std::vector<Value*> held_dependents(const Value& value);

// Holds a value beyond a lock.
class Held {
 public:
  explicit Held(Table& table) : table_(table) {}
  ~Held() {
    if (!value_) return;
    const Table::Lock lock(table_);
    value_ = {};
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  void hold(Value* value) { value_ = Ref<Value>(value); }  // under the lock
  [[nodiscard]] const Ref<Value>& value() const { return value_; }

 private:
  Table& table_;
  Ref<Value> value_;
};

// Called by PyTorch when the address of an armed storage is taken for writing. Libtorch 2.13 and later do this; before,
// taking the address of a value that can be computed again is an error, and that of a root is not noticed.
using ByHand = void (*)(c10::StorageImpl*);
void set_by_hand(ByHand handler);
[[nodiscard]] bool tells_of_access();

}  // namespace reprise::online
