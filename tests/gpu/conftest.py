"""All but test_helpers.py needs a GPU of an architecture that the wheel is built for."""

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))  # gpu_support

LONGEST_TEST_S = 180
"""A test that takes longer hangs: its stack is printed and the process ends, since no other test could run."""


def _missing_hardware() -> str | None:
    if not torch.cuda.is_available():
        return "needs an NVIDIA GPU (sm_90a, sm_100a or sm_103a); this machine has none"
    capability = torch.cuda.get_device_capability()
    if capability not in {(9, 0), (10, 0), (10, 3)}:
        return f"needs sm_90a, sm_100a or sm_103a; this GPU is sm_{capability[0]}{capability[1]}"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = _missing_hardware()
    for item in items:
        if "tests/gpu" in item.path.as_posix() and item.path.name != "test_helpers.py":
            item.add_marker(pytest.mark.gpu)
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if "tests/gpu" in item.path.as_posix():
        faulthandler.dump_traceback_later(LONGEST_TEST_S, exit=True)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
