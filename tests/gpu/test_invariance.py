"""A row's bits depend on the row alone, but for the counts at which the order of a sum changes."""

from __future__ import annotations

import re
from itertools import groupby, pairwise
from pathlib import Path

import pytest
import torch
from gpu_support.plans import DEVICE, has_kernels, plan_rows
from gpu_support.problems import problem_of
from torch import Tensor

import cake_moe
from cake_moe.layout import MAX_TOKENS
from cake_moe.testing.accumulate import accumulation_of
from cake_moe.testing.calls import bits
from cake_moe.testing.stages import call

pytestmark = pytest.mark.skipif(not has_kernels(), reason="needs a GPU that fused_moe has kernels for")

EVERY = 1100  # every count up to here, then both ends of every row of the plan's table and every STEP-th count
STEP = 61
TOKENS = 2048  # on both sides of a break point


def counts() -> list[int]:
    edges = {count for row in plan_rows() for count in (row.first, row.last)}
    return sorted(edges | set(range(1, EVERY + 1)) | set(range(EVERY, MAX_TOKENS + 1, STEP)))


def classes() -> list[list[int]]:
    """Counts that sum in the same order, as the bounds of the comparator have it."""
    return [list(group) for _, group in groupby(counts(), key=lambda count: accumulation_of(count, DEVICE))]


class Caller:
    """Calls with some tokens of one problem whose sums round: block scales from 2^-9 to 448."""

    def __init__(self) -> None:
        self.problem = problem_of(MAX_TOKENS, "uniform", "wide")
        self.workspace = torch.empty(cake_moe.workspace_size(MAX_TOKENS), dtype=torch.uint8, device=DEVICE)
        cake_moe.prepare_workspace(self.workspace, MAX_TOKENS, up_to=True)
        self.output = torch.empty_like(self.problem.input)

    def __call__(self, first: int, count: int) -> Tensor:
        """bf16 [count, H] of the tokens from `first` on, valid until the next call."""
        output = self.output[:count]
        call(self.problem.take(slice(first, first + count)), self.workspace, output)
        return output


@pytest.fixture(scope="module")
def caller() -> Caller:
    return Caller()


def test_bits_do_not_depend_on_the_batch(caller: Caller) -> None:
    """Of the first tokens, and of the last ones, whose places in the tiles move with every count."""
    failed: list[int] = []
    for group in classes():
        head, tail = caller(0, group[-1]).clone(), caller(MAX_TOKENS - group[-1], group[-1]).clone()
        differing = torch.zeros(len(group), dtype=torch.int64, device=DEVICE)
        for i, count in enumerate(group):
            if count <= EVERY or count % 2:
                differing[i] += (bits(caller(0, count)) != bits(head[:count])).sum()
            if count <= EVERY or count % 2 == 0:
                differing[i] += (bits(caller(MAX_TOKENS - count, count)) != bits(tail[-count:])).sum()
        failed += [count for count, n in zip(group, differing.tolist(), strict=True) if n]
    assert not failed, f"rows differ from those of a larger call at {len(failed)} counts: {failed[:20]}"


def test_break_points_are_real_and_documented(caller: Caller) -> None:
    """The last count of one order and the first of the next on the same tokens: few bits differ, hence many calls."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "numerics.md").read_text()
    sums = text[text.index("## Sums") :]
    for before, after in pairwise(classes()):
        last, following = before[-1], after[0]
        differing = torch.zeros((), dtype=torch.int64, device=DEVICE)
        for first in range(0, TOKENS, last):
            small = caller(first, last).clone()
            differing += (bits(small) != bits(caller(first, following)[:last])).sum()
        print(f"{last} and {following} tokens: {int(differing)} bytes of {TOKENS * 7168} differ")
        assert int(differing) > 0
        assert re.search(rf"\b{last} tokens\b", sums), f"docs/numerics.md, Sums: no change named at {last} tokens"
