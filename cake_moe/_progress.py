"""The progress bar of long work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

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
    show = console.is_terminal if enabled is None else enabled
    total = len(items) if isinstance(items, Sized) else None
    yield from _track(items, description, total=total, console=console, disable=not show, transient=True)
