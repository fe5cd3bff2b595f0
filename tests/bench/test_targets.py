"""Results against the targets, and the check that more tokens do not take less time."""

from __future__ import annotations

import dataclasses

import pytest

from cake_moe.bench import targets
from cake_moe.bench.results import CaseResult, HostResult, LaunchResult


def case(tokens: int, time: float, routing: str = "uniform", read: float = 100.0, spread: float = 0.01) -> CaseResult:
    """time, read: microseconds."""
    seconds = {
        "streaming read": [read * 1e-6] * 3,
        "cake_moe": [1e-6 * time * factor for factor in (1 - spread, 1, 1 + spread)],
    }
    return CaseResult(tokens, routing, "cold", 16 * tokens, 16, 1, 1, 1, 0.0, 0.0, seconds)


def verdicts(*cases: CaseResult) -> dict[str, str]:
    return {standing.what: standing.verdict for standing in targets.of_cases(cases)}


def test_must_is_twelve_tenths_of_the_target() -> None:
    for must, target in targets.H200.values():
        assert must == pytest.approx(1.2 * target, rel=0.02)
    assert list(targets.H200) == [2**i for i in range(15)]


@pytest.mark.parametrize(
    ("time", "verdict"), [(20, "met"), (20.1, "within must"), (24, "within must"), (24.1, "missed")]
)
def test_counts_of_the_table(time: float, verdict: str) -> None:
    assert verdicts(case(1, time)) == {"M = 1": verdict}


@pytest.mark.parametrize(("time", "verdict"), [(323.9, "met"), (324.1, "missed")])
def test_counts_between_are_held_to_the_line(time: float, verdict: str) -> None:
    # 32: 200 us, 64: 400 us, so 48: 300 us and 8 percent
    assert verdicts(case(32, 200), case(64, 400), case(48, time))["M = 48"] == verdict
    assert "M = 48" not in verdicts(case(64, 400), case(48, time))


@pytest.mark.parametrize(
    ("uniform", "time", "verdict"), [(110, 129, "met"), (110, 131, "missed"), (150, 149, "met"), (150, 151, "missed")]
)
def test_other_routings_are_held_to_their_own_floor(uniform: float, time: float, verdict: str) -> None:
    assert verdicts(case(64, uniform), case(64, time, "skew"))["M = 64, skew"] == verdict


def test_warm_cases_have_no_target() -> None:
    warm = CaseResult(1, "uniform", "warm", 16, 16, 1, 1, 1, 0.0, 0.0, {"streaming read": [1e-6], "cake_moe": [1e-6]})
    assert verdicts(warm) == {}


def test_launches_and_host_time() -> None:
    few = LaunchResult(64, {"kernel": 2, "memset": 1}, ["a", "b"], [1e-6, 1e-6], [2.1e-6])
    many = LaunchResult(65, {"kernel": 3, "memcpy": 1}, [], [], [])
    standings = {standing.what: standing.verdict for standing in targets.of_launches([few, many])}
    assert standings == {"M = 64, launches": "missed", "M = 64, largest gap": "missed", "M = 65, launches": "met"}
    hosts = [
        HostResult(1, 10, 21e-6, 30e-6, 6e-6),
        HostResult(2, 10, 22e-6, 30e-6, 6e-6),
        HostResult(3, 10, 1, 1, None),
    ]
    assert [standing.verdict for standing in targets.of_host(hosts)] == ["met", "missed"]


def test_falling_times_are_named_beyond_the_spread() -> None:
    assert list(targets.falling([case(8, 100), case(16, 99)])) == []
    (line,) = targets.falling([case(16, 90), case(8, 100), case(32, 120), case(16, 100, "skew")])
    assert line.startswith("uniform, cold: M = 16 takes 90 us, less than the 100 us of M = 8")


def test_one_sample_has_no_spread() -> None:
    once = [
        dataclasses.replace(c, seconds={"streaming read": [1.0], "cake_moe": [1 / c.tokens]})
        for c in (case(1, 1), case(2, 1))
    ]
    assert list(targets.falling(once)) == []
