# Cutlass::headers from the nvidia-cutlass package of the build environment (a build requirement, pinned in
# pyproject.toml). CAKE_CUTLASS_DIR names the include folder; tools/build/native.py passes it.
set(_header "${CAKE_CUTLASS_DIR}/cutlass/version.h")
set(Cutlass_VERSION "")
if(EXISTS "${_header}")
  file(STRINGS "${_header}" _lines REGEX "^#define CUTLASS_(MAJOR|MINOR|PATCH) +[0-9]+")
  foreach(_part MAJOR MINOR PATCH)
    string(REGEX MATCH "CUTLASS_${_part} +([0-9]+)" _match "${_lines}")
    list(APPEND Cutlass_VERSION ${CMAKE_MATCH_1})
  endforeach()
  list(JOIN Cutlass_VERSION "." Cutlass_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Cutlass REQUIRED_VARS CAKE_CUTLASS_DIR VERSION_VAR Cutlass_VERSION
  REASON_FAILURE_MESSAGE "install nvidia-cutlass (pip install --no-deps nvidia-cutlass==4.2.0.0) in the build environment")

if(Cutlass_FOUND AND NOT TARGET Cutlass::headers)
  add_library(Cutlass::headers INTERFACE IMPORTED)
  target_include_directories(Cutlass::headers SYSTEM INTERFACE "${CAKE_CUTLASS_DIR}")
endif()
