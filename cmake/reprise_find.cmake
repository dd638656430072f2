# reprise_find(<package> <version>): finds a required package. It may be missing only if it was left out on
# purpose with CMAKE_DISABLE_FIND_PACKAGE_<package>. The caller tests <package>_FOUND.
macro(reprise_find package version)
  find_package(${package} ${version} QUIET)
  if(NOT ${package}_FOUND)
    if(NOT CMAKE_DISABLE_FIND_PACKAGE_${package})
      message(FATAL_ERROR "${package} ${version} not found. Install it, or build without what needs it: "
        "-DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON")
    endif()
    message(WARNING "${package} is left out, and so is everything that needs it")
  endif()
endmacro()

# reprise_find_json(<version>): provides the target nlohmann_json::nlohmann_json. It comes from the project that includes
# this one, or from the CMake package, or, if only the header is installed, from REPRISE_JSON_INCLUDE_DIR, the folder that
# holds nlohmann/json.hpp.
macro(reprise_find_json version)
  if(NOT TARGET nlohmann_json::nlohmann_json)
    find_package(nlohmann_json ${version} QUIET)
  endif()
  if(NOT TARGET nlohmann_json::nlohmann_json)
    find_path(REPRISE_JSON_INCLUDE_DIR nlohmann/json.hpp DOC "The folder that holds nlohmann/json.hpp")
    if(NOT REPRISE_JSON_INCLUDE_DIR)
      message(FATAL_ERROR "nlohmann/json ${version} not found. Install it (Debian: nlohmann-json3-dev), "
        "or name the folder that holds nlohmann/json.hpp: -DREPRISE_JSON_INCLUDE_DIR=...")
    endif()
    add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED)
    target_include_directories(nlohmann_json::nlohmann_json INTERFACE ${REPRISE_JSON_INCLUDE_DIR})
  endif()
endmacro()

# reprise_find_torch(): provides the target torch, and TORCH_LIBRARIES, TORCH_INCLUDE_DIRS and TORCH_INSTALL_PREFIX, from
# Torch_DIR (the folder of TorchConfig.cmake) or else from the torch of Python_EXECUTABLE. It does not use torch's own
# config file: if torch was built with CUDA, that file asks for a whole CUDA toolkit, and it sets flags for all targets.
macro(reprise_find_torch)
  if(TARGET torch)
    message(STATUS "torch: the target of the enclosing project")
  else()
    reprise_torch_prefix(TORCH_INSTALL_PREFIX)
    set(TORCH_INCLUDE_DIRS ${TORCH_INSTALL_PREFIX}/include ${TORCH_INSTALL_PREFIX}/include/torch/csrc/api/include)
    set(TORCH_LIBRARIES torch)
    reprise_torch_target()
    message(STATUS "torch: ${TORCH_INSTALL_PREFIX}")
  endif()
endmacro()

function(reprise_torch_prefix result)
  if(Torch_DIR)
    get_filename_component(prefix ${Torch_DIR}/../../.. ABSOLUTE)
  else()
    find_package(Python 3.11 REQUIRED COMPONENTS Interpreter)
    reprise_ask_python(prefix "import importlib.util as u, os; print(os.path.dirname(u.find_spec('torch').origin))")
  endif()
  if(NOT EXISTS "${prefix}/include/torch/csrc/api/include/torch/torch.h")
    message(FATAL_ERROR "torch not found. Name an interpreter that has it (-DPython_EXECUTABLE=...), or the folder of "
      "TorchConfig.cmake (-DTorch_DIR=...), or build without: -DREPRISE_TORCH=OFF")
  endif()
  set(${result} ${prefix} PARENT_SCOPE)
endfunction()

function(reprise_torch_target)
  set(lib ${TORCH_INSTALL_PREFIX}/lib)
  add_library(torch INTERFACE IMPORTED GLOBAL)
  target_include_directories(torch INTERFACE ${TORCH_INCLUDE_DIRS})
  target_compile_features(torch INTERFACE cxx_std_20)
  # libtorch.so has no symbols of its own: linking it makes sure that the libraries of all devices are loaded.
  target_link_libraries(torch INTERFACE
    -Wl,--no-as-needed,${lib}/libtorch.so,--as-needed ${lib}/libtorch_cpu.so ${lib}/libc10.so)
  if(EXISTS ${lib}/libtorch_cuda.so)
    # These depend on libraries that the loader finds through libtorch's own search path, but a linker does not.
    target_link_libraries(torch INTERFACE
      ${lib}/libtorch_cuda.so ${lib}/libc10_cuda.so -Wl,--allow-shlib-undefined)
  endif()
endfunction()

# reprise_find_cuda_graphs(): sets REPRISE_CUDA_GRAPHS to whether libtorch has CUDA and the headers of CUDA's runtime were
# found, in a toolkit or in the Python packages beside torch, and REPRISE_CUDA_INCLUDE_DIRS to their folders.
macro(reprise_find_cuda_graphs)
  set(REPRISE_CUDA_GRAPHS OFF)
  if(NOT TARGET torch_cuda AND NOT EXISTS "${TORCH_INSTALL_PREFIX}/lib/libtorch_cuda.so")
    message(STATUS "CUDA graphs from C++: no, libtorch has no CUDA")
  else()
    file(GLOB cuda_folders ${TORCH_INSTALL_PREFIX}/../nvidia/*/include)
    list(APPEND cuda_folders ${CUDAToolkit_INCLUDE_DIRS} $ENV{CUDA_HOME}/include /usr/local/cuda/include
      /usr/local/cuda/targets/${CMAKE_SYSTEM_PROCESSOR}-linux/include)
    # The Python packages have these two files in two folders; a toolkit has both in one.
    find_path(REPRISE_CUDA_CRT_INCLUDE_DIR crt/host_config.h HINTS ${REPRISE_CUDA_INCLUDE_DIR} ${cuda_folders}
      DOC "The folder of crt/host_config.h")
    find_path(REPRISE_CUDA_INCLUDE_DIR cuda_runtime.h HINTS ${REPRISE_CUDA_CRT_INCLUDE_DIR} ${cuda_folders}
      DOC "The folder of cuda_runtime.h")
    if(REPRISE_CUDA_INCLUDE_DIR AND REPRISE_CUDA_CRT_INCLUDE_DIR)
      set(REPRISE_CUDA_GRAPHS ON)
      set(REPRISE_CUDA_INCLUDE_DIRS ${REPRISE_CUDA_INCLUDE_DIR} ${REPRISE_CUDA_CRT_INCLUDE_DIR})
      message(STATUS "CUDA graphs from C++: yes, with ${REPRISE_CUDA_INCLUDE_DIR}")
    else()
      message(STATUS "CUDA graphs from C++: no, cuda_runtime.h and crt/host_config.h not found "
        "(-DREPRISE_CUDA_INCLUDE_DIR=..., -DREPRISE_CUDA_CRT_INCLUDE_DIR=...)")
    endif()
  endif()
endmacro()

# reprise_find_pybind11(<result>): the folder that holds pybind11/pybind11.h, from the interpreter's package pybind11 or
# from torch, which contains a copy. If there is neither, it stops with an error.
function(reprise_find_pybind11 result)
  reprise_ask_python(dir "import pybind11; print(pybind11.get_include())")
  if(NOT dir AND EXISTS "${TORCH_INSTALL_PREFIX}/include/pybind11/pybind11.h")
    set(dir ${TORCH_INSTALL_PREFIX}/include)
  endif()
  if(NOT dir)
    reprise_ask_python(dir "import importlib.util as u, os; print(os.path.dirname(u.find_spec('torch').origin) + '/include')")
  endif()
  if(NOT EXISTS "${dir}/pybind11/pybind11.h")
    message(FATAL_ERROR "pybind11 not found: ${Python_EXECUTABLE} has neither the package pybind11 nor torch. "
      "Install one of them, or build without: -DREPRISE_PYTHON=OFF")
  endif()
  set(${result} ${dir} PARENT_SCOPE)
endfunction()

# reprise_ask_python(<result> <program>): what the Python program prints, or nothing if it fails.
function(reprise_ask_python result program)
  execute_process(COMMAND ${Python_EXECUTABLE} -c "${program}"
    OUTPUT_VARIABLE answer ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(${result} "${answer}" PARENT_SCOPE)
endfunction()
