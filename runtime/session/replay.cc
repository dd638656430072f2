#include "runtime/session/replay.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "reprise/torch/errors.h"
#include "runtime/device/generator.h"
#include "runtime/device/meter.h"
#include "runtime/program/program_queries.h"
#include "runtime/program/tensor_memory.h"

namespace reprise {
namespace {

using Tensors = std::vector<at::Tensor>;
using Results = std::vector<std::optional<at::Tensor>>;

// This lives as long as the process, because replays may exist until its end.
struct Hidden {
  std::mutex mutex;
  std::map<c10::DeviceIndex, std::int64_t> bytes;

  static std::int64_t add(at::Device device, std::int64_t more) {
    static auto* hidden = new Hidden;
    const std::lock_guard lock(hidden->mutex);
    return hidden->bytes[numbered(device).index()] += more;
  }
};

// The part of an expanded tensor that is in memory.
at::Tensor once(at::Tensor tensor) {
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.stride(i) == 0 && tensor.size(i) > 1) tensor = tensor.narrow(i, 0, 1);
  }
  return tensor;
}

// The same contents in memory of their own, by few kernels.
Results copies_of(const Results& results) {
  Results copies;
  Tensors from;
  Tensors to;
  for (const auto& result : results) {
    copies.emplace_back();
    if (!result) continue;
    copies.back() = at::empty_like(*result);
    from.push_back(*result);
    to.push_back(*copies.back());
  }
  if (!to.empty()) at::_foreach_copy_(to, from);
  return copies;
}

// Bytes of copies of what these uses see.
std::int64_t dense_bytes(const std::vector<std::optional<TensorUse>>& uses, at::Device device) {
  std::int64_t bytes = 0;
  for (const auto& use : uses) {
    if (!use) continue;
    const auto element = static_cast<std::int64_t>(c10::elementSize(use->geometry.dtype));
    bytes += granted_bytes(device, c10::multiply_integers(use->geometry.sizes) * element);
  }
  return bytes;
}

std::vector<const void*> addresses_of(std::span<const at::Tensor> inputs, const std::vector<std::size_t>& fixed) {
  std::vector<const void*> addresses;
  for (const std::size_t i : fixed) addresses.push_back(inputs[i].const_data_ptr());
  return addresses;
}

bool contains(const std::vector<std::size_t>& list, std::size_t item) {
  return std::ranges::find(list, item) != list.end();
}

}  // namespace

std::int64_t hidden_bytes(at::Device device) { return Hidden::add(device, 0); }

Replay::Replay(std::shared_ptr<const Program> program, FoundPlan found, std::span<const at::Tensor> inputs,
               ReplayInputs sorted, std::int64_t resident_bytes)
    : program_(std::move(program)),
      found_(std::move(found)),
      executor_(std::make_shared<const Executor>(program_, found_.plan)),
      graph_(program_->device),
      inputs_(std::move(sorted)),
      addresses_(addresses_of(inputs, inputs_.fixed)),
      changed_(inputs_with(*program_, overwritten_values(*program_))) {
  for (const std::size_t i : inputs_with(*program_, {executor_->watched().begin(), executor_->watched().end()})) {
    if (contains(inputs_.fixed, i)) watched_.push_back(i);
  }
  record(inputs, std::max<std::int64_t>(1, found_.simulation.peak_bytes - resident_bytes));
  hidden_bytes_ = graph_.hidden_bytes();
  Hidden::add(program_->device, hidden_bytes_);
  outputs_bytes_ = dense_bytes(program_->forward_outputs, program_->device);
  gradients_bytes_ = dense_bytes(program_->gradients, program_->device) + hand_over_bytes(*program_);
}

Replay::~Replay() { Hidden::add(program_->device, -hidden_bytes_); }

void Replay::record(std::span<const at::Tensor> inputs, std::int64_t own_bytes) {
  const at::Device device = program_->device;
  const at::NoGradGuard no_grad;
  seeds_ = empty_seeds(*program_);
  Tensors arguments(inputs.begin(), inputs.end());
  for (std::size_t i = 0; i < inputs_.copied.size(); ++i) arguments[inputs_.copied[i]] = inputs_.memory[i];
  auto state = std::make_shared<StepState>();  // a graph may be replayed after this function has returned
  const at::Tensor random = generator_state(at::kCPU);
  const GeneratorReplay as_before(at::kCPU, random);
  const std::array<std::function<void()>, 2> parts{
      [this, state, arguments, own_bytes, device] {
        // One block for everything is split as the step goes on and leaves few gaps.
        (void)at::empty({own_bytes}, at::TensorOptions().dtype(at::kByte).device(device));
        outputs_ = executor_->forward(arguments, *state);
      },
      [this, state] { gradients_ = executor_->backward(seeds_, *state); },
  };
  graph_.record(parts);
  if (!generator_state(at::kCPU).equal(random)) {
    throw Unsupported("it draws random numbers on the CPU; draw them on " + device.str());
  }
  for (at::Tensor& memory : inputs_.memory) memory = once(memory);
}

bool Replay::lies_at(std::span<const at::Tensor> inputs) const {
  return addresses_of(inputs, inputs_.fixed) == addresses_;
}

std::shared_ptr<const void> Replay::open() {
  auto token = std::make_shared<const int>(0);
  token_ = token;
  return token;
}

Results Replay::forward(std::span<const at::Tensor> inputs) {
  const at::NoGradGuard no_grad;
  graph_.begin();
  Tensors given;
  for (const std::size_t i : inputs_.copied) given.push_back(once(inputs[i]));
  if (!given.empty()) at::_foreach_copy_(inputs_.memory, given);
  graph_.replay(0);
  ++steps_;
  for (std::size_t i = 0; i < inputs_.copied.size(); ++i) {
    if (contains(changed_, inputs_.copied[i])) given[i].copy_(inputs_.memory[i]);
  }
  seen_.clear();
  versions_.clear();
  for (const std::size_t i : changed_) {
    if (contains(inputs_.fixed, i)) bump_version(inputs[i]);
  }
  for (const std::size_t i : watched_) {
    seen_.push_back(inputs[i]);
    versions_.push_back(version_of(inputs[i]));
  }
  return copies_of(outputs_);
}

Results Replay::backward(std::span<const at::Tensor> seeds) {
  const at::NoGradGuard no_grad;
  const Tensors seen = std::exchange(seen_, {});
  for (std::size_t i = 0; i < seen.size(); ++i) {
    if (version_of(seen[i]) == versions_[i]) continue;
    throw ModifiedInPlace(modified_in_place("a parameter or buffer of '" + program_->name + "'"));
  }
  Tensors to;
  Tensors from;
  Tensors absent;
  for (std::size_t i = 0; i < seeds_.size(); ++i) {
    if (!seeds_[i].defined()) continue;
    const bool given = i < seeds.size() && seeds[i].defined();
    (given ? to : absent).push_back(seeds_[i]);
    if (given) from.push_back(seeds[i]);
  }
  if (!to.empty()) at::_foreach_copy_(to, from);
  if (!absent.empty()) at::_foreach_zero_(absent);
  graph_.replay(1);
  Results gradients = copies_of(gradients_);
  graph_.end();
  return gradients;
}

}  // namespace reprise
