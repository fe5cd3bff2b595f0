"""``python -m cake_moe.bench.model FILE``: an analytic time of a call, fitted to an H200's measured one, and what it
predicts for machines that were not at hand.

    time = launches + fixed + (stream^p + compute^p)^(1/p) + y,    compute = (tiles^q + columns^q)^(1/q)

* launches: an empty graph of as many kernels, measured.
* fixed: what no work explains: routing, the hand-over between stages, the first weights' latency, the last tile.
* stream: weights and block scales of the touched experts over the rate of the cold read of the same run.
* tiles: for every token tile what its weights cost whatever the rows (dequantisation, or the read of the operand that
  the tensor core streams).
* columns: for every column of the tiles' MMAs what MMA and epilogue cost. Columns are the tile's rows padded to 8; on
  sm_90a each instance has a narrowest MMA.
* y: written and read once, at the rate of the stream.
* p = 3, q = 1.5: these overlap, but none fully hides another.

Fitted are fixed, and the costs of a tile and a column; of calls with one launch for both GEMMs fixed and the cost of a
tile, for their tiles are alike. A prediction takes both fixed times, p and q from the fit; stream and y from the
machine's nominal bandwidth and the H200's share of its own; the cost of a tile from 4096 bytes of weights an MMA at 128
bytes a clock of shared memory; the cost of a column from the warp instructions of an epilogue, counted in the PTX
interpreter and issued as fast as on the H200.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cake_moe._native import _C
from cake_moe.bench.cases import EXPERT_BYTES, FLOP_PER_ROUTE
from cake_moe.bench.contenders import Operator
from cake_moe.bench.results import READ, CaseResult, Session
from cake_moe.layout import EXPERTS, FC1_ROWS, FC2_ROWS, HIDDEN, INTERMEDIATE
from cake_moe.testing.plans import weight_launches
from cake_moe.testing.routings import make_routing

STREAM_OVERLAP, COMPUTE_OVERLAP = 3.0, 1.5
COLUMN_GRAIN = 8
STEPS_OF_TILE = (FC1_ROWS * HIDDEN + FC2_ROWS * INTERMEDIATE) // (128 * 64)
"""MMAs of 128 weight rows by K = 64."""
WEIGHTS_OF_STEP, SHARED_BYTES_A_CLOCK = 128 * 64 // 2, 128
COLUMN_INSTRUCTIONS = {"sm_90a": 3100, "sm_100a": 2581}
"""Warp instructions of PTX that a row more in a token tile costs, both GEMMs, counted in the interpreter: for sm_90a
from 80 to 96 rows of a tile of 96, FC2 without its wait for FC1, for sm_100a in tests/ptx/test_sm100_counters.py."""
FC1_SHARE = FC1_ROWS * HIDDEN / (FC1_ROWS * HIDDEN + FC2_ROWS * INTERMEDIATE)
"""Of the arithmetic of a row."""


@dataclass(frozen=True)
class Machine:
    """sms, clock in Hz under load, nominal memory bandwidth in bytes/s, dense rate of the MMA's kind in FLOP/s."""

    name: str
    arch: str
    sms: int
    clock: float
    bandwidth: float
    mma_rate: float


H200 = Machine("H200", "sm_90a", 132, 1.755e9, 4.8e12, 0.8e15)
B200 = Machine("B200", "sm_100a", 148, 1.85e9, 8.0e12, 9.0e15)
B300 = Machine("B300", "sm_103a", 160, 1.92e9, 8.0e12, 13.5e15)
LAUNCH_SECONDS = {1: 3.5e-6, 2: 4.4e-6, 3: 5.6e-6, 4: 6.7e-6}
"""An empty graph of so many kernels on the H200; of three by interpolation. 0.2e-6 more or less from run to run."""


@dataclass(frozen=True)
class Work:
    """launches of a call; whether one of them has both GEMMs and what precedes them; touched experts; token tiles;
    columns of their MMAs, of both GEMMs by their share of the arithmetic; rows."""

    launches: int
    fused: bool
    experts: int
    tiles: int
    columns: float
    rows: int


def _quotient_up(a: NDArray[np.int64], b: int) -> NDArray[np.int64]:
    return (a + b - 1) // b


def _widths(tile_tokens: int, fine: int) -> list[int]:
    """Every multiple of COLUMN_GRAIN from a tile's rows down to `fine`, every other one below; ascending. The rule of
    columns.h of sm_90a."""
    widths = [tile_tokens]
    while (narrower := widths[-1] - (COLUMN_GRAIN if widths[-1] > fine else 2 * COLUMN_GRAIN)) > 0:
        widths.append(narrower)
    return widths[::-1]


def mma_widths(tile_tokens: int, arch: str) -> tuple[list[int], list[int]]:
    """Columns of the MMAs of FC1 and of FC2 of an instance, ascending: fc1/config.h and fc2/config.h of sm_90a."""
    if arch != H200.arch:
        every = list(range(COLUMN_GRAIN, tile_tokens + 1, COLUMN_GRAIN))
        return every, every
    fc1 = _widths(tile_tokens, tile_tokens - 40 if tile_tokens > 48 else COLUMN_GRAIN)
    return fc1, _widths(tile_tokens, tile_tokens - (16 if tile_tokens < 64 else 32))


def work_of(rows_of_expert: Tensor, tile_tokens: int, launches: int, arch: str, *, fused: bool) -> Work:
    """rows_of_expert: int [E], of each in as few tiles as hold them, equal up to a group of COLUMN_GRAIN rows."""
    rows = rows_of_expert[rows_of_expert > 0].numpy()
    tiles, groups = _quotient_up(rows, tile_tokens), _quotient_up(rows, COLUMN_GRAIN)
    shorter, longer = groups // tiles, groups % tiles  # groups of a shorter tile, number of longer ones

    def columns(widths: list[int]) -> int:
        def width(groups: NDArray[np.int64]) -> NDArray[np.int64]:
            return np.array([*widths, 0])[np.searchsorted(widths, COLUMN_GRAIN * groups)]  # 0: no tile is so long

        return int(((tiles - longer) * width(shorter) + longer * width(shorter + 1)).sum())

    fc1, fc2 = (columns(widths) for widths in mma_widths(tile_tokens, arch))
    mean = fc2 + FC1_SHARE * (fc1 - fc2)
    return Work(launches, fused, len(rows), int(tiles.sum()), mean, int(rows.sum()))


def planned_work(tokens: int, arch: str, sms: int, routing: str = "uniform") -> Work:
    """The work of a call by the plan, for the benchmark's first routing of that name."""
    plan = _C.make_plan(tokens, arch, sms)
    tile = max(launch["tile_tokens"] for launch in weight_launches(plan))
    ids = make_routing(routing, tokens, seed=0).view(-1).long()
    rows = torch.bincount(ids[(ids >= 0) & (ids < EXPERTS)], minlength=EXPERTS)
    return work_of(rows, tile, len(plan["launches"]), arch, fused=plan["launches"][0]["stage"] == "experts")


def overlapped(a: float, b: float, p: float) -> float:
    """Time of two parts: from their sum (p = 1) to the longer one."""
    return (a**p + b**p) ** (1 / p)


@dataclass(frozen=True)
class Costs:
    """Seconds: fixed; of a tile and of a column; fixed and of a tile on the fused path. read: bytes/s."""

    fixed: float
    tile: float
    column: float
    fused_fixed: float
    fused_tile: float
    read: float

    def stream(self, work: Work) -> float:
        return work.experts * EXPERT_BYTES / self.read

    def compute(self, work: Work) -> float:
        if work.fused:
            return work.tiles * self.fused_tile
        return overlapped(work.tiles * self.tile, work.columns * self.column, COMPUTE_OVERLAP)

    def seconds(self, work: Work) -> float:
        """Of a call."""
        together = overlapped(self.stream(work), self.compute(work), STREAM_OVERLAP)
        y = 2 * work.rows * HIDDEN * 2 / self.read
        fixed = self.fused_fixed if work.fused else self.fixed
        return LAUNCH_SECONDS[work.launches] + fixed + together + y


_FIRST_GUESS = (20e-6, 0.3e-6, 0.01e-6, 10e-6, 0.6e-6)
_ROUNDS = 200


def _costs(logs: NDArray[np.float64], read: float) -> Costs:
    fixed, tile, column, fused_fixed, fused_tile = np.exp(logs).tolist()
    return Costs(fixed, tile, column, fused_fixed, fused_tile, read)


def fit(works: Sequence[Work], measured: Sequence[float], read: float) -> Costs:
    """Least squares of the relative errors over the five costs, all positive. measured: seconds of each work."""
    target = np.log(np.array(measured))

    def error(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        costs = _costs(logs, read)
        return np.log(np.array([costs.seconds(work) for work in works])) - target

    logs = _gauss_newton(error, np.log(np.array(_FIRST_GUESS)))
    return _costs(logs, read)


def _gauss_newton(
    error: Callable[[NDArray[np.float64]], NDArray[np.float64]], start: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Damped, with a step that is halved until it helps."""
    at, small = start, 1e-5
    for _ in range(_ROUNDS):
        here = error(at)
        slopes = np.array([(error(at + small * unit) - here) / small for unit in np.eye(len(at))]).T
        step = np.linalg.solve(slopes.T @ slopes + 1e-3 * np.eye(len(at)), -slopes.T @ here)
        while float(np.sum(error(at + step) ** 2)) > float(np.sum(here**2)) and np.abs(step).max() > 1e-6:
            step = step / 2
        at = at + step
    return at


def issued_a_clock(fitted: Costs) -> float:
    """Warp instructions of a column over the clocks that it takes an SM of the H200; its MMAs take most of them."""
    return COLUMN_INSTRUCTIONS["sm_90a"] / (fitted.column * H200.sms * H200.clock)


def predicted(machine: Machine, fitted: Costs) -> Costs:
    """Costs of a machine with the sm_100a kernels: see the head of this module."""
    read = machine.bandwidth * fitted.read / H200.bandwidth
    clocks = machine.sms * machine.clock
    tile = STEPS_OF_TILE * WEIGHTS_OF_STEP / SHARED_BYTES_A_CLOCK / clocks
    epilogue = COLUMN_INSTRUCTIONS["sm_100a"] / issued_a_clock(fitted) / clocks
    column = max(epilogue, FLOP_PER_ROUTE / machine.mma_rate)
    fused_tile = overlapped(tile, COLUMN_GRAIN * column, COMPUTE_OVERLAP)
    return Costs(fitted.fixed, tile, column, fitted.fused_fixed, fused_tile, read)


def measured_read(cases: Iterable[CaseResult]) -> float:
    """Bytes/s of the largest cold read of a run, without the launch."""
    case = max(cases, key=lambda case: case.touched_bytes)
    return case.touched_bytes / (case.median(READ) - LAUNCH_SECONDS[1])


def _print(head: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    for cells in (head, ["---"] * len(head), *lines):
        print("| " + " | ".join(cells) + " |")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m cake_moe.bench.model", description="Fit and prediction.")
    parser.add_argument("file", type=Path, help="JSON of python -m cake_moe.bench --device cuda on an H200")
    session = Session.load(parser.parse_args(arguments).file)
    cases = [case for case in session.cases if case.state == "cold"]
    works = [planned_work(case.tokens, H200.arch, H200.sms, case.routing) for case in cases]
    times = [statistics.median(case.seconds[Operator.name]) for case in cases]
    costs = fit(works, times, measured_read(cases))
    print(
        f"read {costs.read / 1e12:.2f} TB/s, fixed {1e6 * costs.fixed:.1f} us, a tile {1e9 * costs.tile:.0f} ns and a"
    )
    print(f"column {1e9 * costs.column:.1f} ns of the whole GPU; fused: fixed {1e6 * costs.fused_fixed:.1f} us, a tile")
    print(f"{1e9 * costs.fused_tile:.0f} ns; {issued_a_clock(costs):.1f} warp instructions a clock and SM\n")
    rows = []
    for case, work, time in zip(cases, works, times, strict=True):
        share = f"{1e6 * costs.stream(work):.0f}", f"{1e6 * costs.compute(work):.0f}"
        off = f"{100 * (costs.seconds(work) / time - 1):+.0f} %"
        rows.append(
            (str(case.tokens), case.routing, f"{1e6 * time:.1f}", f"{1e6 * costs.seconds(work):.1f}", off, *share)
        )
    _print(("M", "routing", "measured, us", "model, us", "off by", "stream, us", "compute, us"), rows)
    print()
    predictions = []
    for tokens in sorted({case.tokens for case in cases}):
        cells = [str(tokens)]
        for machine in (B200, B300):
            work, there = planned_work(tokens, machine.arch, machine.sms), predicted(machine, costs)
            cells += [f"{1e6 * there.seconds(work):.0f}", f"{1e6 * there.stream(work):.0f}"]
            cells.append(f"{1e6 * there.compute(work):.0f}")
        predictions.append(cells)
    parts = [f"{machine.name}{part}" for machine in (B200, B300) for part in (", us", ": stream", ": compute")]
    _print(("M", *parts), predictions)


if __name__ == "__main__":
    main()
