"""How long one call takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import torch


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


class EventClock:
    """For work of a GPU's current stream, which must still be busy with something else when `seconds` is called.

    Otherwise the GPU would wait between the events for the host to submit the call.
    """

    def __init__(self, launch: str) -> None:
        """launch: how the calls are made, for the name."""
        self.name = f"CUDA events, {launch}"
        self._start, self._stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def seconds(self, call: Callable[[], object]) -> float:
        self._start.record()
        call()
        self._stop.record()
        self._stop.synchronize()
        # A float32 of milliseconds, whose last digits are those of no clock: 24 us would not be "at most 24 us".
        return round(self._start.elapsed_time(self._stop) * 1e-3, 9)
