#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reprise/error.h"
#include "runtime/kernels/kernel_file.h"
#include "runtime/kernels/launch.h"
#include "torch_parts.h"

namespace reprise::bindings {
namespace {

LaunchArgument::Kind kind_from(const std::string& name) {
  using Kind = LaunchArgument::Kind;
  static constexpr std::array<std::pair<std::string_view, Kind>, 6> kKinds{{{"read", Kind::kRead},
                                                                            {"changed", Kind::kChanged},
                                                                            {"made", Kind::kMade},
                                                                            {"number", Kind::kNumber},
                                                                            {"workspace", Kind::kWorkspace},
                                                                            {"null", Kind::kNull}}};
  for (const auto& [known, kind] : kKinds) {
    if (known == name) return kind;
  }
  throw InputError("'" + name + "' is not a kind of argument of a kernel");
}

}  // namespace

void bind_kernels(py::module_& module) {
  module.def(
      "launch_arguments",
      [](const std::vector<std::pair<std::string, std::int64_t>>& given) {
        std::vector<LaunchArgument> arguments;
        for (const auto& [kind, number] : given) arguments.push_back({.kind = kind_from(kind), .number = number});
        return to_numbers(arguments);
      },
      py::arg("arguments"),
      "The argument `arguments` of reprise::launch. Each is (kind, number): 'read', 'changed' or 'made' and which "
      "tensor, 'number' and its bits, 'workspace' and the offset, 'null' and 0.");
  module.def(
      "launch_made",
      [](const std::vector<std::pair<Geometry, std::int64_t>>& given) {
        std::vector<MadeMemory> made;
        for (const auto& [geometry, bytes] : given) made.push_back({.geometry = geometry, .bytes = bytes});
        return to_numbers(made);
      },
      py::arg("made"), "The argument `made` of reprise::launch: for each result its geometry and bytes.");
  module.def(
      "write_kernel",
      [](const std::string& file, const py::bytes& image) { return write_kernel(file, std::string_view(image)); },
      py::arg("file"), py::arg("image"),
      "Writes a file into the folder of kernels. Returns whether that was possible.");
  module.def(
      "kernel_folder", [] { return kernel_folder().string(); }, "The folder of the cache where generated kernels lie.");
}

}  // namespace reprise::bindings
