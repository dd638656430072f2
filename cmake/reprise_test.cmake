# One CTest per binary or script; its folder under tests/ is its label. (One per case would
# cost seconds each under LeakSanitizer on small machines.)

# Labels, a time limit that holds on a machine five times slower, and leak checking off: the unit tests look for leaks.
# Containers that libtorch fills are not annotated, and look overrun.
function(reprise_test_properties name label)
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT 1800)
  if(REPRISE_SANITIZE MATCHES "address")
    set_tests_properties(${name} PROPERTIES ENVIRONMENT ASAN_OPTIONS=detect_leaks=0:detect_container_overflow=0)
  endif()
endfunction()

# reprise_test(<label> <file>...): the binary <label>_test and the CTest <label>.
function(reprise_test label)
  add_executable(${label}_test ${ARGN})
  # Tests may look at the parts: src/ is on their include path, and so is tests/.
  target_include_directories(${label}_test PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${label}_test PRIVATE reprise::core GTest::gmock GTest::gtest_main)
  target_compile_definitions(${label}_test PRIVATE REPRISE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  # Smaller exhaustive sets where every step is slow.
  if(REPRISE_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
    target_compile_definitions(${label}_test PRIVATE REPRISE_SMALL_TESTS)
  endif()
  reprise_target_defaults(${label}_test)
  add_test(NAME ${label} COMMAND ${label}_test)
  reprise_test_properties(${label} ${label})
endfunction()

# reprise_sees_runtime(<target>): a test that includes parts of the runtime.
function(reprise_sees_runtime target)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE reprise::torch)
  reprise_mostly_headers(${target})
endfunction()

# reprise_python_test(<name> <label> <script> <argument>...)
function(reprise_python_test name label script)
  add_test(NAME ${name} COMMAND Python3::Interpreter ${script} ${ARGN}
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  reprise_test_properties(${name} ${label})
endfunction()
