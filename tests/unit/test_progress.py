"""The parallel loop: every item once, the first error, torch's thread counts as before."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from typing import Any

import pytest
import torch

from cake_moe._progress import for_each, track


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def count_in_new_thread() -> int:
    counts: list[int] = []
    thread = threading.Thread(target=lambda: counts.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return counts[0]


def test_every_item_once(threads: int) -> None:
    seen: list[int] = []
    for_each(seen.append, range(50), "")
    assert sorted(seen) == list(range(50))


def test_each_thread_runs_torch_alone_and_counts_are_restored(threads: int) -> None:
    counts: list[int] = []
    for_each(lambda _: counts.append(torch.get_num_threads()), range(8), "")
    assert counts == [1] * 8
    assert torch.get_num_threads() == threads
    assert count_in_new_thread() == threads


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_gradient_and_inference_modes_are_the_callers(threads: int, mode: Callable[[], Any]) -> None:
    def modes() -> tuple[bool, bool]:
        return torch.is_inference_mode_enabled(), torch.is_grad_enabled()

    found: list[tuple[bool, bool]] = []
    with mode():
        expected = modes()
        for_each(lambda _: found.append(modes()), range(8), "")
    assert found == [expected] * 8


def test_first_error_is_raised_and_the_rest_is_left(threads: int) -> None:
    started: list[int] = []
    release = threading.Event()

    def fail(item: int) -> None:
        started.append(item)
        if item == 0:
            raise ValueError("item 0")
        if item > threads:
            release.wait(0.01)

    with pytest.raises(ValueError, match=r"^item 0$"):
        for_each(fail, range(10_000), "")
    assert len(started) < 10_000
    assert torch.get_num_threads() == threads
    assert count_in_new_thread() == threads


def test_bar_only_where_asked() -> None:
    for enabled, shown in ((False, False), (None, False), (True, True)):
        with redirect_stderr(io.StringIO()) as text:
            assert list(track(range(3), "loading", enabled=enabled)) == [0, 1, 2]
        assert ("loading" in text.getvalue()) == shown
        assert shown or text.getvalue() == ""
