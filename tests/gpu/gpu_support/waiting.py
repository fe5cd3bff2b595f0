"""Waiting that ends: a test of hangs must not hang."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch


def within(seconds: float, done: Callable[[], bool]) -> bool:
    """Whether `done` came true within that time."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(0.0005)
    return True


def require_finished(event: torch.cuda.Event, seconds: float, what: str) -> None:
    """Ends the whole session where the GPU hangs: no later test could run."""
    if not within(seconds, event.query):
        pytest.exit(f"{what} has not ended after {seconds} s: the GPU hangs", returncode=3)
