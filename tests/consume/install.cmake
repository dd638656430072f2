# Installs BUILD_DIR into an empty PREFIX, and checks that the installed headers are the public ones of SOURCE_DIR; those of
# the libtorch layer are expected only if WITH_TORCH is on.
file(REMOVE_RECURSE ${PREFIX})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${PREFIX} COMMAND_ERROR_IS_FATAL ANY)
file(GLOB_RECURSE public RELATIVE ${SOURCE_DIR}/include ${SOURCE_DIR}/include/*.h)
if(NOT WITH_TORCH)
  list(FILTER public EXCLUDE REGEX "^reprise/torch")
endif()
file(GLOB_RECURSE installed RELATIVE ${PREFIX}/include ${PREFIX}/include/*)
if(NOT "${installed}" STREQUAL "${public}")
  message(FATAL_ERROR "installed headers: ${installed}\npublic headers: ${public}\n"
    "A new header needs a line in src/CMakeLists.txt or runtime/CMakeLists.txt.")
endif()
