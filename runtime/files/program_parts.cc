#include "runtime/files/program_parts.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>

#include <unordered_set>

#include "reprise/error.h"
#include "runtime/files/program_text.h"

namespace reprise::detail {
namespace {

constexpr std::size_t kMostDimensions = 25;  // the most that kernels accept
constexpr std::uint32_t kMostBatch = 65535;

struct GeometryReading {
  const ProgramNames* names;
  Geometry geometry{};

  [[nodiscard]] std::int64_t size(JsonReader& in) const {
    return in.at(JsonKind::kInteger) ? in.size() : read_integer(in, *names);
  }
};

constexpr JsonField<GeometryReading> kGeometryFields[] = {
    {"dtype",
     [](JsonReader& in, GeometryReading& item) {
       const std::string name = in.string();
       const auto dtype = dtype_from(name);
       if (!dtype) in.fail("'" + name + "' is not a type of elements that this reader knows");
       item.geometry.dtype = *dtype;
     },
     kRequired},
    {"sizes",
     [](JsonReader& in, GeometryReading& item) { in.array([&] { item.geometry.sizes.push_back(item.size(in)); }); },
     kRequired},
    {"strides",
     [](JsonReader& in, GeometryReading& item) { in.array([&] { item.geometry.strides.push_back(item.size(in)); }); },
     kRequired},
    {"offset", [](JsonReader& in, GeometryReading& item) { item.geometry.offset = item.size(in); }},
    {"conj", [](JsonReader& in, GeometryReading& item) { item.geometry.conj = in.boolean(); }},
    {"neg", [](JsonReader& in, GeometryReading& item) { item.geometry.neg = in.boolean(); }},
};

struct ConstantReading {
  const ProgramNames* names;
  std::optional<TensorUse> use{};
  std::string bytes{};
};

constexpr JsonField<ConstantReading> kConstantFields[] = {
    {"use", [](JsonReader& in, ConstantReading& item) { item.use = read_use(in, *item.names); }, kRequired},
    {"bytes",
     [](JsonReader& in, ConstantReading& item) {
       auto bytes = bytes_from(in.string());
       if (!bytes) in.fail("not a text in base 64");
       item.bytes = std::move(*bytes);
     },
     kRequired},
};

}  // namespace

at::Device read_device(JsonReader& in) {
  const std::string name = in.string();
  const auto device = device_from(name);
  if (!device) in.fail("'" + name + "' is not a device; devices are 'cpu' and 'cuda:0'");
  const bool is_there =
      device->is_cpu() || (device->is_cuda() && at::hasCUDA() && device->index() < static_cast<int>(at::getNumGPUs()));
  if (!is_there) {
    in.fail("the program was captured for " + name +
            ", which this machine or this libtorch does not have, and does not run " +
            "on another device; capture it again with the model on the device it shall run on");
  }
  return *device;
}

std::vector<std::string> read_state_names(JsonReader& in) {
  std::vector<std::string> names;
  std::unordered_set<std::string> seen;
  in.array([&] {
    std::string name = in.string();
    if (!seen.insert(name).second) in.fail("'" + name + "' comes twice");
    names.push_back(std::move(name));
  });
  return names;
}

// Where numbers follow from sizes, what is possible is known once there are sizes.
void read_geometries(JsonReader& in, ProgramNames& names) {
  in.array([&] {
    GeometryReading item{&names};
    in.object(kGeometryFields, item);
    const Geometry& geometry = item.geometry;
    if (geometry.sizes.size() != geometry.strides.size()) in.fail("as many sizes as strides are needed");
    if (geometry.sizes.size() > kMostDimensions) in.fail("more than 25 dimensions");
    if (!names.num_computed && !is_possible(geometry)) in.fail("reaches over 2^54 elements");
    names.geometries.push_back(std::move(item.geometry));
  });
}

std::string read_scope(JsonReader& in, const ProgramNames& names) {
  const std::uint32_t position = in.id();
  if (position >= names.scopes.size()) {
    in.fail("`scopes` has " + std::to_string(names.scopes.size()) + " names, and comes before");
  }
  return names.scopes[position];
}

std::int32_t read_state_position(JsonReader& in, std::size_t count) {
  const std::uint32_t position = in.id();
  if (position >= count) in.fail("`state` has " + std::to_string(count) + " names, and comes before");
  return static_cast<std::int32_t>(position);
}

std::int32_t read_batch_position(JsonReader& in) {
  const std::uint32_t position = in.id();
  if (position > kMostBatch) in.fail("a batch cannot have so many tensors");
  return static_cast<std::int32_t>(position);
}

std::vector<std::pair<ValueId, at::Tensor>> read_constants(JsonReader& in, const ProgramNames& names) {
  std::vector<std::pair<ValueId, at::Tensor>> constants;
  in.array([&] {
    ConstantReading item{&names};
    in.object(kConstantFields, item);
    if (!item.use) in.fail("a constant has a value");
    const Geometry& geometry = item.use->geometry;
    if (!is_possible(geometry)) in.fail("the sizes of a constant do not follow from those of inputs");
    if (extent_bytes(geometry) > static_cast<std::int64_t>(item.bytes.size())) {
      in.fail(to_string(geometry) + " needs " + std::to_string(extent_bytes(geometry)) + " bytes, there are " +
              std::to_string(item.bytes.size()));
    }
    if (geometry.conj || geometry.neg) in.fail("a constant is neither conjugate nor negative");
    constants.emplace_back(item.use->value, tensor_of(geometry, item.bytes));
  });
  return constants;
}

}  // namespace reprise::detail
