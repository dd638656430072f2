# There is one CTest per binary or script, and its label is its folder under tests/. (One CTest per test case would cost
# seconds for each under LeakSanitizer on small machines.)

# reprise_test_properties(<name> <label>): sets the label and a time limit that is long enough for a machine five times
# slower. Under the address sanitizer, leak checking is off, because the unit tests check for leaks, and container checks
# are off, because containers that libtorch fills are not annotated and would be reported as overrun.
function(reprise_test_properties name label)
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT 1800)
  if(REPRISE_SANITIZE MATCHES "address")
    set_tests_properties(${name} PROPERTIES ENVIRONMENT ASAN_OPTIONS=detect_leaks=0:detect_container_overflow=0)
  endif()
endfunction()

# reprise_test(<label> <file>...): the binary <label>_test and the CTest <label>.
function(reprise_test label)
  add_executable(${label}_test ${ARGN})
  # Tests may include internal headers: src/ and tests/ are on their include path.
  target_include_directories(${label}_test PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${label}_test PRIVATE reprise::core GTest::gmock GTest::gtest_main)
  target_compile_definitions(${label}_test PRIVATE REPRISE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  # Slow builds run the exhaustive tests on smaller sets.
  if(REPRISE_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
    target_compile_definitions(${label}_test PRIVATE REPRISE_SMALL_TESTS)
  endif()
  reprise_target_defaults(${label}_test)
  add_test(NAME ${label} COMMAND ${label}_test)
  reprise_test_properties(${label} ${label})
endfunction()

# reprise_two_halves(<label>): makes two CTests, <label> and <label>_second_half, of a test that takes longer than all others, so
# that it does not run alone at the end.
function(reprise_two_halves label)
  add_test(NAME ${label}_second_half COMMAND ${label}_test)
  reprise_test_properties(${label}_second_half ${label})
  set_property(TEST ${label} ${label}_second_half APPEND PROPERTY ENVIRONMENT GTEST_TOTAL_SHARDS=2)
  set_property(TEST ${label} APPEND PROPERTY ENVIRONMENT GTEST_SHARD_INDEX=0)
  set_property(TEST ${label}_second_half APPEND PROPERTY ENVIRONMENT GTEST_SHARD_INDEX=1)
endfunction()

# reprise_precompile_gmock(<target>): for a test of several files, each of which would take seconds to read this header.
function(reprise_precompile_gmock target)
  if(REPRISE_UNITY)
    target_precompile_headers(${target} PRIVATE <gmock/gmock.h>)
    reprise_keep_precompiled(${target})
  endif()
endfunction()

# reprise_sees_runtime(<target>): lets a test include internal headers of the runtime.
function(reprise_sees_runtime target)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE reprise::torch)
  reprise_mostly_headers(${target})
endfunction()

# reprise_python_test(<name> <label> <script> <argument>...): a CTest that runs a Python script.
function(reprise_python_test name label script)
  add_test(NAME ${name} COMMAND Python3::Interpreter ${script} ${ARGN}
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  reprise_test_properties(${name} ${label})
endfunction()
