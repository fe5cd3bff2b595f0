"""How long one call takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Times one call on a device; `name` goes into the results."""

    name: str

    def seconds(self, call: Callable[[], object]) -> float:
        """Seconds from the start of `call` to the end of the work that it causes."""


class WallClock:
    """For work that is done when the call returns: the CPU."""

    name = "wall clock, eager"

    def seconds(self, call: Callable[[], object]) -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start
