# Flags for the targets of this project only. They are linked PRIVATE as $<BUILD_INTERFACE:reprise_flags>, so users of the
# library do not get them.
add_library(reprise_flags INTERFACE)
target_compile_features(reprise_flags INTERFACE cxx_std_20)
target_compile_options(reprise_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor
  -Wold-style-cast -Woverloaded-virtual -Wimplicit-fallthrough
  -Wno-missing-field-initializers  # GCC also warns about {.name = x}, which leaves other fields at their defaults on purpose.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>  # GCC 12 reports overlaps inside std::string that do not exist.
  -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=  # Messages name files relative to the sources, not by the paths of this machine.
  $<$<BOOL:${REPRISE_WERROR}>:-Werror>)
target_compile_definitions(reprise_flags INTERFACE
  REPRISE_VERSION="${PROJECT_VERSION}"
  $<$<CONFIG:Debug>:_GLIBCXX_ASSERTIONS>)

# What spends its time elsewhere (reprise_compile_quickly) is compiled with -O1, and under a sanitizer with -O0: this takes half
# of the compile time.
set(quickly $<BOOL:$<TARGET_PROPERTY:REPRISE_COMPILE_QUICKLY>>)
if(REPRISE_SANITIZE)
  # The exhaustive tests are too slow at -O0. -g1 gives stack traces their line numbers in two thirds of the compile time of -g.
  target_compile_options(reprise_flags INTERFACE
    -fsanitize=${REPRISE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1
    -O$<IF:${quickly},0,1>
    $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)  # libtorch's headers use fences, which the thread sanitizer does not support.
  target_link_options(reprise_flags INTERFACE -fsanitize=${REPRISE_SANITIZE})
  target_compile_definitions(reprise_flags INTERFACE REPRISE_SANITIZE="${REPRISE_SANITIZE}")
else()
  target_compile_options(reprise_flags INTERFACE $<$<AND:${quickly},$<NOT:$<CONFIG:Debug>>>:-O1>)
endif()

if(REPRISE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "REPRISE_FUZZ needs clang (libFuzzer); this is ${CMAKE_CXX_COMPILER_ID}")
  endif()
  target_compile_options(reprise_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# reprise_target_defaults(<target>): C++20 without compiler extensions, and the flags above. Every target of this project
# uses it.
function(reprise_target_defaults target)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:reprise_flags>)
endfunction()

# reprise_unity(<target> <folders>...): with REPRISE_UNITY, the sources of each set of folders ("plan|simulate") form one
# translation unit, so that libtorch's headers are read a few times instead of once per file. Other sources are compiled
# one by one.
function(reprise_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${REPRISE_UNITY} UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    foreach(folders IN LISTS ARGN)
      if(source MATCHES "^(${folders})/")
        string(REGEX REPLACE "[|/]" "_" group ${folders})
        set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
        break()
      endif()
    endforeach()
  endforeach()
endfunction()

# reprise_keep_precompiled(<target>): lets ccache keep what is compiled with a precompiled header.
function(reprise_keep_precompiled target)
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endfunction()

# reprise_compile_quickly(<target>...): see above. Tests, examples and commands spend their time in the libraries that they use.
function(reprise_compile_quickly)
  set_target_properties(${ARGN} PROPERTIES REPRISE_COMPILE_QUICKLY ON)
endfunction()

# reprise_mostly_headers(<target>...): programs whose code comes mostly from libtorch's headers are compiled quickly, and share
# one precompiled torch/torch.h, whose reading would take more than half of their compile time.
function(reprise_mostly_headers)
  reprise_compile_quickly(${ARGN})
  if(TARGET reprise_torch_headers)
    foreach(target IN LISTS ARGN)
      target_precompile_headers(${target} REUSE_FROM reprise_torch_headers)
      reprise_keep_precompiled(${target})
    endforeach()
  endif()
endfunction()
