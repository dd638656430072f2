# reprise_find(<package> <version>): find_package(REQUIRED), unless the package is left out on
# purpose by CMAKE_DISABLE_FIND_PACKAGE_<package>. The caller tests <package>_FOUND.
macro(reprise_find package version)
  find_package(${package} ${version} QUIET)
  if(NOT ${package}_FOUND)
    if(NOT CMAKE_DISABLE_FIND_PACKAGE_${package})
      message(FATAL_ERROR "${package} ${version} not found. Install it, or build without what needs it: "
        "-DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON")
    endif()
    message(WARNING "left out: ${package}, and what needs it")
  endif()
endmacro()
