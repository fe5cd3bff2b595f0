"""Long work: a progress bar, and a loop over all cores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import torch
from rich.console import Console
from rich.progress import track as _track

T = TypeVar("T")


def track(items: Iterable[T], description: str, *, enabled: bool | None = None) -> Iterator[T]:
    """Yield the items behind a progress bar on stderr.

    Args:
        items: what to iterate over; sized.
        description: left of the bar.
        enabled: None shows the bar only where stderr is a terminal.
    """
    console = Console(stderr=True)
    terminal = console.is_terminal
    if terminal if enabled is None else enabled:
        total = len(items) if isinstance(items, Sized) else None
        yield from _track(items, description, total=total, console=console, transient=terminal)
    else:
        yield from items


def for_each(
    function: Callable[[T], None], items: Sequence[T], description: str, *, enabled: bool | None = None
) -> None:
    """Call the function on every item, on as many threads as torch uses, behind a progress bar.

    One thread an item scales where torch's own threads do not: they would meet after every small operation. torch has
    a number of threads for each thread and a default for new ones; the default is 1 until this returns. The
    caller's gradient and inference modes, which are those of a thread too, hold for the function.

    Raises:
        Exception: what the function raised for the first item that failed; no further items are started.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        for item in track(items, description, enabled=enabled):
            function(item)
        return
    inference, grad = torch.is_inference_mode_enabled(), torch.is_grad_enabled()

    def run(item: T) -> None:
        with torch.inference_mode(inference), torch.set_grad_enabled(grad):
            function(item)

    try:
        with ThreadPoolExecutor(threads, initializer=partial(torch.set_num_threads, 1)) as pool:
            futures = [pool.submit(run, item) for item in items]
            try:
                for future in track(futures, description, enabled=enabled):
                    future.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
    finally:
        torch.set_num_threads(threads)
