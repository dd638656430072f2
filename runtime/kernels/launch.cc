#include "runtime/kernels/launch.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <string>
#include <utility>

#include "reprise/error.h"
#include "runtime/kernels/kernel_file.h"
#include "runtime/program/operator_facts.h"
#include "runtime/program/tensor_memory.h"

namespace reprise {
namespace {

// Generated CUDA kernels read several numbers at once.
constexpr std::uintptr_t kAlignment = 16;

class NumberReader {
 public:
  explicit NumberReader(at::IntArrayRef numbers) : numbers_(numbers) {}

  [[nodiscard]] bool at_end() const { return next_ == numbers_.size(); }
  [[nodiscard]] std::int64_t take() {
    if (at_end()) throw InputError("a call of reprise::launch ends in the middle of its numbers");
    return numbers_[next_++];
  }
  [[nodiscard]] std::vector<std::int64_t> take(std::int64_t count) {
    std::vector<std::int64_t> taken;
    for (std::int64_t i = 0; i < count; ++i) taken.push_back(take());
    return taken;
  }

 private:
  at::IntArrayRef numbers_;
  std::size_t next_ = 0;
};

// The results: new memory, or an operand's where `operands` names one for the result.
std::vector<at::Tensor> results_for(at::IntArrayRef numbers, at::Device device,
                                    const std::map<std::size_t, at::Tensor>& operands) {
  std::vector<at::Tensor> tensors;
  for (NumberReader in(numbers); !in.at_end();) {
    Geometry geometry{.dtype = static_cast<at::ScalarType>(in.take())};
    const std::int64_t bytes = in.take();
    const std::int64_t dimensions = in.take();
    geometry.sizes = in.take(dimensions);
    geometry.strides = in.take(dimensions);
    const auto operand = operands.find(tensors.size());
    const at::Tensor memory =
        operand == operands.end() ? at::empty({bytes}, at::TensorOptions(at::kByte).device(device)) : operand->second;
    tensors.push_back(view_of(memory, geometry));
  }
  return tensors;
}

std::map<std::size_t, at::Tensor> overwritten(at::IntArrayRef over, at::TensorList reads) {
  std::map<std::size_t, at::Tensor> operands;
  for (NumberReader in(over); !in.at_end();) {
    const auto result = static_cast<std::size_t>(in.take());
    operands.emplace(result, reads.at(static_cast<std::size_t>(in.take())));
  }
  return operands;
}

LaunchGrid grid_from(at::IntArrayRef numbers) {
  NumberReader in(numbers);
  LaunchGrid grid;
  const auto next = [&] { return static_cast<std::uint32_t>(in.take()); };
  if (in.at_end()) return grid;  // the CPU has none
  for (std::uint32_t& blocks : grid.blocks) blocks = next();
  grid.threads = next();
  grid.shared_bytes = next();
  return grid;
}

void* address_of(const at::Tensor& tensor, at::Device device) {
  void* address = tensor.data_ptr();
  if (device.is_cuda() && reinterpret_cast<std::uintptr_t>(address) % kAlignment != 0) {  // NOLINT: looks at its bits
    throw InputError(
        "a tensor that a generated kernel reads begins at an address that is not a multiple of 16 bytes: "
        "give the model a copy of it (.clone()) instead of a slice");
  }
  return address;
}

// NOLINTNEXTLINE: the parameters are those of the schema
std::vector<at::Tensor> launch(std::string file, std::string function, at::Device device, at::IntArrayRef grid,
                               at::IntArrayRef arguments, at::TensorList reads, at::TensorList changes,
                               at::IntArrayRef made, std::int64_t workspace_bytes, bool /*atomic*/,
                               at::IntArrayRef /*samples*/, at::IntArrayRef over, bool in_place) {
  const LoadedKernel& kernel = LoadedKernel::find(file, function, device);
  std::vector<at::Tensor> results = results_for(made, device, overwritten(in_place ? over : at::IntArrayRef(), reads));
  at::Tensor workspace;
  if (workspace_bytes > 0)
    workspace = at::empty({workspace_bytes}, at::TensorOptions(at::kByte).device(device)).zero_();

  std::vector<std::uint64_t> values;
  values.reserve(arguments.size() / 2);
  std::vector<void*> addresses;
  const auto add_pointer = [&](void* pointer) {
    values.push_back(reinterpret_cast<std::uint64_t>(pointer));  // NOLINT: passed on by its bits
  };
  for (NumberReader in(arguments); !in.at_end();) {
    const auto kind = static_cast<LaunchArgument::Kind>(in.take());
    const std::int64_t number = in.take();
    const auto which = static_cast<std::size_t>(number);
    switch (kind) {
      case LaunchArgument::Kind::kRead:
        add_pointer(address_of(reads.at(which), device));
        break;
      case LaunchArgument::Kind::kChanged:
        add_pointer(address_of(changes.at(which), device));
        break;
      case LaunchArgument::Kind::kMade:
        add_pointer(results.at(which).data_ptr());
        break;
      case LaunchArgument::Kind::kNumber:
        values.push_back(static_cast<std::uint64_t>(number));
        break;
      case LaunchArgument::Kind::kWorkspace:
        add_pointer(static_cast<std::byte*>(workspace.data_ptr()) + number);
        break;
      case LaunchArgument::Kind::kNull:
        values.push_back(0);
        break;
    }
  }
  for (std::uint64_t& value : values) addresses.push_back(&value);
  kernel.run(addresses, grid_from(grid), device);
  return results;
}

TORCH_LIBRARY_FRAGMENT(reprise, library) {
  library.def(
      "launch(str file, str function, Device device, int[] grid, int[] arguments, Tensor[] reads, "
      "Tensor(a!)[] changes, int[] made, int workspace_bytes, bool atomic, int[] samples, int[] over=[], "
      "bool in_place=False) -> Tensor[]",
      torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(launch)));
}

}  // namespace

std::vector<std::int64_t> to_numbers(std::span<const LaunchArgument> arguments) {
  std::vector<std::int64_t> numbers;
  for (const LaunchArgument& argument : arguments) {
    numbers.push_back(static_cast<std::int64_t>(argument.kind));
    numbers.push_back(argument.number);
  }
  return numbers;
}

std::vector<std::int64_t> to_numbers(std::span<const MadeMemory> made) {
  std::vector<std::int64_t> numbers;
  for (const MadeMemory& memory : made) {
    const Geometry& geometry = memory.geometry;
    numbers.push_back(static_cast<std::int64_t>(geometry.dtype));
    numbers.push_back(memory.bytes);
    numbers.push_back(static_cast<std::int64_t>(geometry.sizes.size()));
    numbers.insert(numbers.end(), geometry.sizes.begin(), geometry.sizes.end());
    numbers.insert(numbers.end(), geometry.strides.begin(), geometry.strides.end());
  }
  return numbers;
}

bool uses_atomics(const Call& launch) { return flag(launch, "atomic"); }

std::map<ValueId, std::int64_t> samples_of(const Call& call) {
  std::map<ValueId, std::int64_t> samples;
  if (call.op.operator_name().name != kLaunch) return samples;
  const auto numbers = call.argument("samples")->constant.toIntVector();
  const Argument& reads = *call.argument("reads");
  for (std::size_t i = 0; i < std::min(numbers.size(), reads.tensors.size()); ++i) {
    if (numbers[i] != 0) samples[reads.tensors[i]->value] = numbers[i];
  }
  return samples;
}

}  // namespace reprise
