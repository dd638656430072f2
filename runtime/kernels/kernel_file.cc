#include "runtime/kernels/kernel_file.h"

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "reprise/error.h"
#include "reprise/io.h"
#include "runtime/device/cuda_driver.h"
#include "runtime/device/meter.h"
#include "runtime/files/cache.h"

namespace reprise {
namespace {

constexpr const char* kFolder = "kernels";

// What is done to kernels by CUDA's driver.
class Driver {
 public:
  static const Driver& get() {
    static const Driver driver;
    return driver;
  }

  [[nodiscard]] void* function(const std::string& binary, const std::string& name) const {
    void* module = nullptr;
    check(load_(&module, binary.data()), "load a kernel's binary");
    void* found = nullptr;
    check(get_function_(&found, module, name.c_str()), "find the function '" + name + "' in a kernel's binary");
    return found;
  }

  void run(void* function, std::span<void*> arguments, const LaunchGrid& grid, void* stream) const {
    if (grid.shared_bytes > kSharedBytesByDefault) {
      check(set_attribute_(function, kMaxDynamicSharedBytes, static_cast<int>(grid.shared_bytes)), "use shared memory");
    }
    check(launch_(function, grid.blocks[0], grid.blocks[1], grid.blocks[2], grid.threads, 1, 1, grid.shared_bytes,
                  stream, arguments.data(), nullptr),
          "run a kernel");
  }

 private:
  using Load = int (*)(void**, const void*);
  using GetFunction = int (*)(void**, void*, const char*);
  using SetAttribute = int (*)(void*, int, int);
  using Launch = int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                         void**);

  static constexpr std::uint32_t kSharedBytesByDefault = 48 << 10;
  static constexpr int kMaxDynamicSharedBytes = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

  Driver()
      : cuda_(CudaDriver::instance()),
        load_(cuda_.find<Load>("cuModuleLoadData")),
        get_function_(cuda_.find<GetFunction>("cuModuleGetFunction")),
        set_attribute_(cuda_.find<SetAttribute>("cuFuncSetAttribute")),
        launch_(cuda_.find<Launch>("cuLaunchKernel")) {}

  void check(int result, const std::string& what) const { cuda_.check(result, what); }

  const CudaDriver& cuda_;
  Load load_;
  GetFunction get_function_;
  SetAttribute set_attribute_;
  Launch launch_;
};

struct Loaded {
  std::mutex mutex;
  std::vector<std::filesystem::path> folders;
  // By file, function and device: a binary is loaded into the context of one GPU.
  std::map<std::tuple<std::string, std::string, c10::DeviceIndex>, std::unique_ptr<const LoadedKernel>> kernels;

  static Loaded& all() {
    static auto* loaded = new Loaded;  // NOLINT: lives as long as the process
    return *loaded;
  }
};

std::filesystem::path path_of(const std::vector<std::filesystem::path>& folders, const std::string& file) {
  for (const auto& folder : folders) {
    if (std::filesystem::exists(folder / file)) return folder / file;
  }
  const std::filesystem::path cached = kernel_folder() / file;
  if (std::filesystem::exists(cached)) return cached;
  throw InputError("the kernel file " + file + " is neither beside the program nor in " +
                   cached.parent_path().string() + ": compile or export the model again");
}

void* function_in_library(const std::filesystem::path& path, const std::string& name) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw InputError("cannot load " + path.string() + ": " + dlerror());
  void* address = dlsym(library, name.c_str());
  if (address == nullptr) throw InputError(path.string() + " has no kernel '" + name + "'");
  return address;
}

}  // namespace

std::filesystem::path kernel_folder() { return cache_folder() / kFolder; }

bool write_kernel(const std::string& file, std::string_view image) {
  return write_cache((std::filesystem::path(kFolder) / file).string(), image);
}

void add_kernel_folder(const std::filesystem::path& folder) {
  Loaded& loaded = Loaded::all();
  const std::lock_guard lock(loaded.mutex);
  loaded.folders.push_back(folder);
}

const LoadedKernel& LoadedKernel::find(const std::string& file, const std::string& function, c10::Device device) {
  Loaded& loaded = Loaded::all();
  const std::lock_guard lock(loaded.mutex);
  auto& kernel = loaded.kernels[{file, function, numbered(device).index()}];
  if (kernel == nullptr) {
    const std::filesystem::path path = path_of(loaded.folders, file);
    void* address =
        device.is_cpu() ? function_in_library(path, function) : Driver::get().function(read_text(path), function);
    kernel.reset(new LoadedKernel(address));
  }
  return *kernel;
}

void LoadedKernel::run(std::span<void*> arguments, const LaunchGrid& grid, c10::Device device) const {
  if (device.is_cpu()) {
    reinterpret_cast<void (*)(void**)>(address_)(arguments.data());  // NOLINT: see function_in_library
    return;
  }
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  Driver::get().run(address_, arguments, grid, stream.native_handle());
}

}  // namespace reprise
