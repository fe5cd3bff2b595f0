"""A context in which calls take workspaces that nobody prepared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def auto_prepare() -> Iterator[None]:
    """Inside, a call on an unknown workspace writes the default betas there and goes on instead of raising ValueError.

    For ``torch.library.opcheck``, which clones the arguments of an operator. All other rules stay, nothing is
    remembered, and the switch is one of the whole process.
    """
    previous = torch.ops.cake._set_auto_prepare(True)
    try:
        yield
    finally:
        torch.ops.cake._set_auto_prepare(previous)
