"""The version, stated once: pyproject.toml and CMake read this file, and the native library carries a copy."""

__version__ = "0.1.0"
