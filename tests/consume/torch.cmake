# Tests of the libtorch layer from outside.
reprise_test_headers(headers_torch reprise_torch)

reprise_torch_version(torch_version)
add_test(NAME consume_torch_package COMMAND ${CMAKE_COMMAND} --fresh
  -S ${CMAKE_CURRENT_SOURCE_DIR}/torch_package -B ${CMAKE_CURRENT_BINARY_DIR}/consume_torch_package
  -G ${CMAKE_GENERATOR} -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}
  -DREPRISE_PREFIX=${prefix} -DTORCH_VERSION=${torch_version})
reprise_test_properties(consume_torch_package consume)
set_tests_properties(consume_torch_package PROPERTIES FIXTURES_REQUIRED installed)

# reprise_consume_torch(<name> <option of cmake>...): builds and runs torch_consumer with the installed package.
function(reprise_consume_torch name)
  reprise_consume(${name} torch_consumer -DTorch_DIR=${TORCH_INSTALL_PREFIX}/share/cmake/Torch ${ARGN})
  set_tests_properties(${name} PROPERTIES ENVIRONMENT OMP_NUM_THREADS=1 FIXTURES_REQUIRED installed TIMEOUT 1200)
endfunction()

# If libtorch was built for CUDA, its own config file asks for a CUDA toolkit. This project does without that file, but
# the tests below use it.
set(find_torch ON)
find_program(REPRISE_NVCC nvcc)
if(EXISTS ${TORCH_INSTALL_PREFIX}/lib/libtorch_cuda.so AND NOT REPRISE_NVCC)
  set(find_torch OFF)
  message(WARNING "the tests with find_package(Torch) are left out: this libtorch asks for a CUDA toolkit, and none was found")
endif()
# This test compiles only the user's program. The files of the libtorch layer have been compiled already, and the tests below
# link them.
add_test(NAME consume_torch_add_subdirectory COMMAND ${CMAKE_CTEST_COMMAND}
  --build-and-test ${CMAKE_CURRENT_SOURCE_DIR}/torch_consumer ${CMAKE_CURRENT_BINARY_DIR}/consume_torch_add_subdirectory
  --build-generator Ninja --build-target CMakeFiles/torch_consumer.dir/main.cc.o
  --build-options -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}
    -DCMAKE_CXX_COMPILER_LAUNCHER=${launcher} -DTorch_DIR=${TORCH_INSTALL_PREFIX}/share/cmake/Torch
    -DREPRISE_SOURCE=${PROJECT_SOURCE_DIR} -DFIND_TORCH=${find_torch})
reprise_test_properties(consume_torch_add_subdirectory consume)
if(find_torch)
  reprise_consume_torch(consume_torch_find_both -DFIND_TORCH=ON -DCMAKE_PREFIX_PATH=${prefix})
  reprise_consume_torch(consume_torch_find_package -DFIND_TORCH=OFF -DCMAKE_PREFIX_PATH=${prefix})
endif()
