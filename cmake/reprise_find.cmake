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

# reprise_find_json(<version>): nlohmann_json::nlohmann_json, from the project around us, from its package,
# or, where only the header is there, from REPRISE_JSON_INCLUDE_DIR, the folder that holds nlohmann/json.hpp.
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
