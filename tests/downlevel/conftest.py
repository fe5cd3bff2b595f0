"""sm_100a kernels rewritten for sm_90a. All but test_gpu.py needs the CUDA toolkit alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT / "tools" / "ptxrun"), str(ROOT / "tests" / "ptx"), str(HERE)]
os.environ.setdefault("PTXRUN_CACHE", str(ROOT / "build" / "ptxrun"))


def _missing_toolkit() -> str | None:
    from ptxrun.toolkit import ToolkitMissing, find_nvcc

    try:
        find_nvcc()
    except ToolkitMissing as missing:
        return f"needs the CUDA toolkit: {missing}"
    return None


def _missing_gpu() -> str | None:
    if torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0):
        return None
    return "needs an NVIDIA GPU of compute capability 9.0"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    toolkit, gpu = _missing_toolkit(), _missing_gpu()
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        on_gpu = item.path.name == "test_gpu.py"
        if on_gpu:
            item.add_marker(pytest.mark.gpu)
        if reason := toolkit or (gpu if on_gpu else None):
            item.add_marker(pytest.mark.skip(reason=reason))
