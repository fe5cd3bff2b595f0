# CAKE_VERSION from cake_moe/_version.py, the only place that states it.
file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/../cake_moe/_version.py" _line REGEX "^__version__ = \"[^\"]+\"$")
string(REGEX REPLACE "^__version__ = \"([^\"]+)\"$" "\\1" CAKE_VERSION "${_line}")
if(NOT CAKE_VERSION MATCHES "^[0-9]+\\.[0-9]+\\.[0-9]+$")
  message(FATAL_ERROR "cake_moe/_version.py must hold one line __version__ = \"N.N.N\", got '${_line}'")
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/../cake_moe/_version.py")
