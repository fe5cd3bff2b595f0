"""What all tests of the interpreter share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent
sys.path[:0] = [str(PROJECT), *(str(folder) for folder in sorted(HERE.iterdir()) if folder.is_dir())]
os.environ.setdefault("PTXRUN_CACHE", str(PROJECT.parents[1] / "build" / "ptxrun"))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "toolkit: needs nvcc; skipped without a CUDA toolkit")
    config.addinivalue_line("markers", "full: large or long cases")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    from ptxrun.toolkit import ToolkitMissing, find_nvcc

    try:
        find_nvcc()
    except ToolkitMissing as missing:
        for item in items:
            if item.get_closest_marker("toolkit") is not None:
                item.add_marker(pytest.mark.skip(reason=f"needs the CUDA toolkit: {missing}"))
