"""The analytic time of a call: the fit finds known costs, and the H200's measured times within 15 %."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cake_moe.bench import model
from cake_moe.bench.contenders import Operator
from cake_moe.bench.model import (
    B200,
    B300,
    H200,
    Costs,
    Work,
    fit,
    measured_read,
    mma_widths,
    planned_work,
    predicted,
    work_of,
)
from cake_moe.bench.results import CaseResult, Session
from cake_moe.layout import EXPERTS
from cake_moe.testing.plans import plan_rows

ROOT = Path(__file__).parents[2]
WITHIN = 0.15
Key = tuple[int, str]


@pytest.fixture(scope="module")
def cases() -> list[CaseResult]:
    """The run of docs/performance.md."""
    return Session.load(ROOT / "docs" / "performance_h200.json").cases


@pytest.fixture(scope="module")
def works(cases: list[CaseResult]) -> list[Work]:
    return [planned_work(case.tokens, H200.arch, H200.sms, case.routing) for case in cases]


def errors(cases: list[CaseResult], works: list[Work], times: list[float]) -> tuple[Costs, dict[Key, float]]:
    costs = fit(works, times, measured_read(cases))
    keys = [(case.tokens, case.routing) for case in cases]
    return costs, {key: costs.seconds(w) / t - 1 for key, w, t in zip(keys, works, times, strict=True)}


def medians(cases: list[CaseResult]) -> list[float]:
    return [case.median(Operator.name) for case in cases]


def test_the_h200_is_reproduced(cases: list[CaseResult], works: list[Work]) -> None:
    costs, off = errors(cases, works, medians(cases))
    print(costs, {key: f"{100 * error:+.1f} %" for key, error in off.items()})
    assert len(off) == len(cases) >= 30
    assert max(map(abs, off.values())) <= WITHIN
    assert 5e-6 < costs.fixed < 40e-6
    assert costs.column > 1 / (H200.mma_rate / model.FLOP_PER_ROUTE)


def test_a_row_that_does_not_fit_is_seen(cases: list[CaseResult], works: list[Work]) -> None:
    odd = (1024, "uniform")
    times = [
        seconds * (1.4 if (case.tokens, case.routing) == odd else 1)
        for case, seconds in zip(cases, medians(cases), strict=True)
    ]
    _, off = errors(cases, works, times)
    assert off[odd] < -WITHIN


def test_known_costs_are_found(works: list[Work]) -> None:
    known = Costs(17e-6, 0.3e-6, 0.02e-6, 9e-6, 0.5e-6, 4.5e12)
    found = fit(works, [known.seconds(work) for work in works], known.read)
    for name, value in vars(known).items():
        assert getattr(found, name) == pytest.approx(value, rel=0.01), name


def test_work() -> None:
    rows = torch.zeros(EXPERTS, dtype=torch.int64)
    rows[[0, 5, 9]] = torch.tensor([1, 16, 33])
    padded = work_of(rows, 16, 3, "sm_100a", fused=False)
    assert padded == Work(3, False, 3, 1 + 1 + 3, 8 + 16 + 16 + 16 + 8, 50)
    on_sm_90a = work_of(rows, 16, 3, H200.arch, fused=False)
    assert on_sm_90a.columns == 64  # its MMAs are as narrow
    assert replace(on_sm_90a, columns=64) == padded
    assert planned_work(1, "sm_100a", 148) == Work(2, True, 16, 16, 128, 16)
    assert planned_work(100, "sm_100a", 148).launches == 3


def test_columns_of_equal_tiles() -> None:
    """113 rows are 64 and 56 columns of a tile of 64, not 64 and 49 rows; 1 row is 8 of FC1 and 16 of FC2."""
    rows = torch.zeros(EXPERTS, dtype=torch.int64)
    rows[0] = 113
    assert work_of(rows, 64, 4, H200.arch, fused=False).columns == pytest.approx(64 + 56)
    rows[1] = 1
    assert work_of(rows, 64, 4, H200.arch, fused=False).columns == pytest.approx(64 + 56 + (2 * 8 + 16) / 3)
    rows[0] = 65  # tiles of 40 and 32 rows
    assert work_of(rows, 64, 4, H200.arch, fused=False).columns == pytest.approx((2 * 80 + 88) / 3)


def test_widths_are_those_of_the_kernels() -> None:
    headers = ROOT / "src" / "kernels" / "sm90"
    assert "return columns > fine ? columns - 8 : columns - 16;" in (headers / "columns.h").read_text()
    tiles = {row.tile_tokens for row in plan_rows(H200.arch, H200.sms)}
    assert len(tiles) >= 5
    for gemm, name in enumerate(("fc1", "fc2")):
        found = re.search(r"kFineColumns = (.+) \? (.+) : (.+);", (headers / name / "config.h").read_text())
        assert found, f"kFineColumns of {name} has another form"
        for tile in tiles:
            condition, *fine = (eval(part, {"kTokens": tile}) for part in found.groups())
            down = [tile]
            while (narrower := down[-1] - (8 if down[-1] > fine[not condition] else 16)) > 0:
                down.append(narrower)
            assert mma_widths(tile, H200.arch)[gemm] == down[::-1], (name, tile)


def test_predictions(cases: list[CaseResult], works: list[Work]) -> None:
    """The stream scales with the bandwidth, a tile with SMs and clock; more tokens never take less."""
    costs, _ = errors(cases, works, medians(cases))
    there = predicted(B200, costs)
    assert there.read == pytest.approx(costs.read * B200.bandwidth / H200.bandwidth)
    faster = predicted(replace(B200, clock=2 * B200.clock), costs)
    assert (faster.tile, faster.column) == pytest.approx((there.tile / 2, there.column / 2))
    assert there.tile == pytest.approx(504 * 32 / (148 * 1.85e9))
    counts = sorted({case.tokens for case in cases})
    for machine in (B200, B300):
        times = [predicted(machine, costs).seconds(planned_work(m, machine.arch, machine.sms)) for m in counts]
        assert times == sorted(times)
