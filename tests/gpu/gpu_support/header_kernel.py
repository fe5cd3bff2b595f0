"""Kernels that a test writes around the package's headers, compiled by NVRTC."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

_SOURCES = Path(__file__).resolve().parents[3] / "src"
# NVRTC has no standard headers.
_CSTDINT = """
#pragma once
using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
"""


def compile_kernel(source: str, name: str) -> Callable[..., Any]:
    """The kernel `name` of CUDA C++ text that may include headers of src; called as torch.cuda._compile_kernel says."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "cstdint").write_text(_CSTDINT)
        return torch.cuda._compile_kernel(
            source, name, cuda_include_dirs=[folder, str(_SOURCES)], nvcc_options=["--std=c++20"]
        )
