"""The project's kernels in the interpreter: needs nvcc, cmake and a C++ compiler, no GPU."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT / "tools" / "ptxrun"), str(HERE)]
os.environ.setdefault("PTXRUN_CACHE", str(ROOT / "build" / "ptxrun"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    from ptxrun.toolkit import ToolkitMissing, find_nvcc

    try:
        find_nvcc()
    except ToolkitMissing as missing:
        for item in items:
            if item.path.is_relative_to(HERE):
                item.add_marker(pytest.mark.skip(reason=f"needs the CUDA toolkit: {missing}"))
