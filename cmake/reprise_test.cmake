# reprise_test(<label> SOURCES <file>... [LIBRARIES <target>...] [TIMEOUT <s>])
# makes the binary <label>_test and the CTest <label>, labelled <label>. One CTest
# per binary: every process costs seconds under LeakSanitizer on small machines.
function(reprise_test label)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LIBRARIES" ${ARGN})
  reprise_keep_existing(arg_SOURCES)
  if(NOT arg_SOURCES)
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()

  add_executable(${label}_test ${arg_SOURCES})
  # Tests may look at the parts: src/ is on their include path, and so is tests/.
  target_include_directories(${label}_test PRIVATE
    ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${label}_test PRIVATE
    reprise::core ${arg_LIBRARIES} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${label}_test PRIVATE
    REPRISE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  # Smaller exhaustive sets where every step is slow.
  if(REPRISE_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
    target_compile_definitions(${label}_test PRIVATE REPRISE_SMALL_TESTS)
  endif()
  reprise_target_defaults(${label}_test)

  add_test(NAME ${label} COMMAND ${label}_test)
  set_tests_properties(${label} PROPERTIES LABELS ${label} TIMEOUT ${arg_TIMEOUT})
  if(REPRISE_SANITIZE MATCHES "address")
    set_tests_properties(${label} PROPERTIES ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)
  endif()
endfunction()
