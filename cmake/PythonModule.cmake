# cake_moe/_C of the Python that CAKE_PYTHON names.
if(NOT EXISTS "${CAKE_GENERATED_DIR}/build_config.h")
  message(FATAL_ERROR "CAKE_GENERATED_DIR must hold the build_config.h of a built libcake_ops.so, got "
    "'${CAKE_GENERATED_DIR}'")
endif()
set(Python_EXECUTABLE "${CAKE_PYTHON}")
set(PYBIND11_FINDPYTHON ON)
find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)
find_package(pybind11 CONFIG REQUIRED)

pybind11_add_module(_C MODULE NO_EXTRAS ${CAKE_PYTHON_SOURCES})
target_link_libraries(_C PRIVATE cake_host_flags)
target_include_directories(_C PRIVATE "${CAKE_GENERATED_DIR}")
set_target_properties(_C PROPERTIES
  SKIP_BUILD_RPATH ON LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/product")
set(_exports "${CMAKE_CURRENT_SOURCE_DIR}/cmake/exports_python.map")
target_link_options(_C PRIVATE "-Wl,--version-script=${_exports}" -Wl,--gc-sections -s)
set_property(TARGET _C APPEND PROPERTY LINK_DEPENDS "${_exports}")
