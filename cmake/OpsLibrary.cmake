# libcake_ops.so
include(CudaArchs)

if(CAKE_REQUESTED_ARCHS)
  set(CMAKE_CUDA_ARCHITECTURES OFF)  # every kernel library states its own
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
  enable_language(CUDA)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13.0)
    message(FATAL_ERROR "nvcc 13.0 or newer is needed, ${CMAKE_CUDA_COMPILER} is ${CMAKE_CUDA_COMPILER_VERSION}")
  endif()
  set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG")
  # Keeps the assembler's report, PTX and machine code of every object for ci/check_ptxas and ci/kernel_text.py.
  set(CMAKE_CUDA_COMPILER_LAUNCHER sh "${CMAKE_CURRENT_SOURCE_DIR}/cmake/nvcc_launcher.sh")

  find_package(Cutlass REQUIRED)
  add_library(cake_cuda_flags INTERFACE)
  target_compile_options(cake_cuda_flags INTERFACE
    --compress-mode=size --expt-relaxed-constexpr -Xptxas=-v -Xcompiler=-ffp-contract=off,-fno-math-errno,-Wall,-Wextra)
  target_include_directories(cake_cuda_flags INTERFACE "${CMAKE_CURRENT_SOURCE_DIR}/src")
  target_link_libraries(cake_cuda_flags INTERFACE Cutlass::headers)
  cake_declare_cuda_kernels()
endif()
cake_check_cuda_archs()

# What was built, compiled into both products.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(CAKE_X86 ON)
  set(CAKE_CPU_ISAS_JSON "[\"portable\", \"avx2\", \"avx512\"]")
else()
  set(CAKE_X86 OFF)
  set(CAKE_CPU_ISAS_JSON "[\"portable\"]")
endif()
list(TRANSFORM CAKE_REQUESTED_ARCHS PREPEND "sm_" OUTPUT_VARIABLE _archs)
list(JOIN _archs ", " CAKE_CUDA_ARCHS_TEXT)
list(TRANSFORM _archs REPLACE "(.+)" "\"\\1\"")
list(JOIN _archs ", " _archs)
set(CAKE_CUDA_ARCHS_JSON "[${_archs}]")
set(CAKE_MOE_SM90A OFF)
set(CAKE_MOE_SM100A OFF)
if(TARGET cake_kernels_sm90)
  set(CAKE_MOE_SM90A ON)
endif()
if(TARGET cake_kernels_sm100)
  set(CAKE_MOE_SM100A ON)
endif()
string(REGEX REPLACE "[ \n]+" " " CAKE_KERNELS_JSON "${CAKE_KERNELS_JSON}")  # the header holds it on one line
configure_file(cmake/build_config.h.in generated/build_config.h @ONLY)

add_library(cake_ops MODULE ${CAKE_PLAN_SOURCES} ${CAKE_BINDINGS_SOURCES} ${CAKE_CPU_SOURCES})
target_link_libraries(cake_ops PRIVATE cake_host_flags ${CMAKE_DL_LIBS})
target_include_directories(cake_ops PRIVATE "${CMAKE_CURRENT_BINARY_DIR}/generated")

if(CAKE_X86)
  target_sources(cake_ops PRIVATE ${CAKE_CPU_AVX2_SOURCES} ${CAKE_CPU_AVX512_SOURCES})
  set_source_files_properties(${CAKE_CPU_AVX2_SOURCES} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
  set_source_files_properties(${CAKE_CPU_AVX512_SOURCES} PROPERTIES
    COMPILE_OPTIONS "-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512vnni;-mfma")
  target_compile_definitions(cake_ops PRIVATE CAKE_CPU_X86=1)
endif()

# Only torch's stable C shims are used. libtorch_cpu.so is in the process before this library is loaded and is found
# by its soname; there is no path to any torch installation in the file.
if(NOT EXISTS "${CAKE_TORCH_DIR}/include/torch/csrc/stable/library.h")
  message(FATAL_ERROR "CAKE_TORCH_DIR must be the folder of an installed torch >= 2.10, got '${CAKE_TORCH_DIR}'")
endif()
target_include_directories(cake_ops SYSTEM PRIVATE "${CAKE_TORCH_DIR}/include")
target_compile_definitions(cake_ops PRIVATE TORCH_TARGET_VERSION=0x020a000000000000)
target_link_libraries(cake_ops PRIVATE "${CAKE_TORCH_DIR}/lib/libtorch_cpu.so")

if(CAKE_REQUESTED_ARCHS)
  target_compile_definitions(cake_ops PRIVATE CAKE_WITH_CUDA=1)
  target_include_directories(cake_ops SYSTEM PRIVATE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
  target_link_libraries(cake_ops PRIVATE ${CAKE_CUDA_OBJECT_LIBRARIES})
  target_link_directories(cake_ops PRIVATE ${CAKE_CUDA_LIBRARY_DIR} ${CMAKE_CUDA_HOST_IMPLICIT_LINK_DIRECTORIES})
  target_link_libraries(cake_ops PRIVATE cudart_static pthread rt)
  target_sources(cake_ops PRIVATE ${CAKE_GPU_SOURCES})
  if(CAKE_MOE_SM90A)
    target_sources(cake_ops PRIVATE ${CAKE_SM90_SOURCES})
  endif()
  if(CAKE_MOE_SM100A)
    target_sources(cake_ops PRIVATE ${CAKE_SM100_SOURCES})
  endif()
else()
  target_compile_definitions(cake_ops PRIVATE CAKE_WITH_CUDA=0)
endif()

set_target_properties(cake_ops PROPERTIES
  PREFIX "lib" SUFFIX ".so" LINKER_LANGUAGE CXX SKIP_BUILD_RPATH ON CUDA_RUNTIME_LIBRARY None
  LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/product")
target_link_options(cake_ops PRIVATE
  "-Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/cmake/exports.map" -Wl,--gc-sections -Wl,--no-undefined -s)
set_property(TARGET cake_ops APPEND PROPERTY LINK_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/cmake/exports.map")
