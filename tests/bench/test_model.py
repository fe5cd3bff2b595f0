"""The analytic time of a call: the fit finds known costs, and the H200's measured times within 15 %."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cake_moe.bench import model
from cake_moe.bench.model import B200, B300, H200, Costs, Work, fit, planned_work, predicted, work_of
from cake_moe.layout import EXPERTS
from cake_moe.testing.routings import make_routing

WITHIN = 0.15
READ = 4.515e12
# M, token tile, launches, median us of a call: H200, cold L2, one run of cake_moe.bench; read 4.515 TB/s there.
MEASURED = [
    (1, 8, 2, 35.07),
    (2, 8, 2, 50.75),
    (3, 8, 2, 63.78),
    (4, 8, 2, 71.78),
    (8, 8, 2, 118.6),
    (12, 8, 2, 153.0),
    (16, 8, 2, 185.0),
    (32, 8, 2, 295.6),
    (33, 8, 2, 301.4),
    (48, 8, 2, 379.7),
    (64, 8, 2, 455.5),
    (100, 8, 4, 505.3),
    (128, 8, 4, 546.5),
    (160, 8, 4, 574.3),
    (200, 8, 4, 585.2),
    (256, 8, 4, 615.2),
    (300, 8, 4, 660.6),
    (400, 16, 4, 668.9),
    (512, 16, 4, 676.5),
    (700, 24, 4, 723.0),
    (1024, 24, 4, 783.6),
    (1500, 48, 4, 911.2),
    (2048, 48, 4, 966.5),
    (3000, 80, 4, 1303.9),
    (4096, 96, 4, 1536.9),
    (6000, 64, 4, 2258.7),
    (8192, 80, 4, 2908.6),
    (12000, 128, 4, 3873.7),
    (16384, 112, 4, 5286.9),
]


def uniform_work(tokens: int, tile: int, launches: int) -> Work:
    rows = torch.bincount(make_routing("uniform", tokens, seed=0).view(-1).long(), minlength=EXPERTS)
    return work_of(rows, tile, launches, fused=launches == 2, whole_tiles=True)


@pytest.fixture(scope="module")
def works() -> list[Work]:
    return [uniform_work(tokens, tile, launches) for tokens, tile, launches, _ in MEASURED]


def errors(works: list[Work], times: list[float]) -> tuple[Costs, dict[int, float]]:
    costs = fit(works, times, READ)
    tokens = [row[0] for row in MEASURED]
    return costs, {m: costs.seconds(w) / t - 1 for m, w, t in zip(tokens, works, times, strict=True)}


def test_the_h200_is_reproduced(works: list[Work]) -> None:
    costs, off = errors(works, [1e-6 * row[3] for row in MEASURED])
    print(costs, {tokens: f"{100 * error:+.1f} %" for tokens, error in off.items()})
    assert max(map(abs, off.values())) <= WITHIN
    assert 10e-6 < costs.fixed < 40e-6
    assert costs.column > 1 / (H200.mma_rate / model.FLOP_PER_ROUTE)


def test_a_row_that_does_not_fit_is_seen(works: list[Work]) -> None:
    times = [1e-6 * row[3] * (1.4 if row[0] == 1024 else 1) for row in MEASURED]
    _, off = errors(works, times)
    assert off[1024] < -WITHIN


def test_known_costs_are_found(works: list[Work]) -> None:
    known = Costs(17e-6, 0.3e-6, 0.02e-6, 0.4e-6, 0.07e-6, READ)
    found = fit(works, [known.seconds(work) for work in works], READ)
    for name, value in vars(known).items():
        assert getattr(found, name) == pytest.approx(value, rel=0.01), name


def test_work() -> None:
    rows = torch.zeros(EXPERTS, dtype=torch.int64)
    rows[[0, 5, 9]] = torch.tensor([1, 16, 33])
    padded, whole = (work_of(rows, 16, 3, fused=False, whole_tiles=whole) for whole in (False, True))
    assert padded == Work(3, False, 3, 1 + 1 + 3, 8 + 16 + 16 + 16 + 8, 50)
    assert whole == replace(padded, columns=5 * 16)
    assert planned_work(1, "sm_100a", 148) == Work(2, True, 16, 16, 128, 16)
    assert planned_work(100, "sm_100a", 148).launches == 3


def test_predictions(works: list[Work]) -> None:
    """The stream scales with the bandwidth, a tile with SMs and clock; more tokens never take less."""
    costs, _ = errors(works, [1e-6 * row[3] for row in MEASURED])
    there = predicted(B200, costs)
    assert there.read == pytest.approx(READ * B200.bandwidth / H200.bandwidth)
    faster = predicted(replace(B200, clock=2 * B200.clock), costs)
    assert (faster.tile, faster.column) == pytest.approx((there.tile / 2, there.column / 2))
    assert there.tile == pytest.approx(504 * 32 / (148 * 1.85e9))
    for machine in (B200, B300):
        times = [predicted(machine, costs).seconds(planned_work(m, machine.arch, machine.sms)) for m, *_ in MEASURED]
        assert times == sorted(times)
