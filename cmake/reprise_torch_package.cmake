# What both the build and the installed package have to know about libtorch: its release, and the C++ library to use.

# reprise_torch_version(<result>): the release of the target torch, such as 2.13.0, as its headers give it.
function(reprise_torch_version result)
  unset(header)
  unset(numbers)
  get_target_property(folders torch INTERFACE_INCLUDE_DIRECTORIES)
  find_file(header NAMES torch/headeronly/version.h torch/version.h PATHS ${folders} NO_DEFAULT_PATH NO_CACHE)
  set(version "unknown")
  if(header)
    file(READ ${header} text)
    foreach(part MAJOR MINOR PATCH)
      string(REGEX MATCH "TORCH_VERSION_${part} ([0-9]+)" found "${text}")
      list(APPEND numbers "${CMAKE_MATCH_1}")
    endforeach()
    list(JOIN numbers "." version)
  endif()
  set(${result} ${version} PARENT_SCOPE)
endfunction()

# reprise_shared_libstdcxx(<target> <scope>): makes the program or module share one C++ library with libtorch, since
# exceptions and streams pass between them. A compiler without libstdc++.so would otherwise link the static one. The library
# is linked before libtorch, because libtorch exports some parts of the C++ library that it was built with (of
# std::filesystem), but not all: a program that took these from libtorch and the rest from its own library would crash.
function(reprise_shared_libstdcxx target scope)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.so
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT IS_ABSOLUTE "${found}")
    find_library(REPRISE_LIBSTDCXX NAMES libstdc++.so.6 PATHS /lib/${CMAKE_LIBRARY_ARCHITECTURE}
      /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE} REQUIRED)
    set(found ${REPRISE_LIBSTDCXX})
  endif()
  target_link_options(${target} ${scope}
    "$<BUILD_INTERFACE:LINKER:--push-state,--no-as-needed,${found},--pop-state>")
endfunction()
