"""This project's own targets for the H200, and how results stand against them. Nobody else's figures are in here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from .contenders import Operator
from .results import CaseResult, HostResult, LaunchResult


class Target(NamedTuple):
    """Microseconds of a call captured as a graph, cold L2, uniform routing, on one H200."""

    must: float
    target: float


H200 = {
    1: Target(24, 20),
    2: Target(38, 32),
    4: Target(67, 56),
    8: Target(113, 94),
    16: Target(192, 160),
    32: Target(318, 265),
    64: Target(474, 395),
    128: Target(618, 515),
    256: Target(678, 565),
    512: Target(696, 580),
    1024: Target(720, 600),
    2048: Target(816, 680),
    4096: Target(1200, 1000),
    8192: Target(2280, 1900),
    16384: Target(4440, 3700),
}
BETWEEN = 1.08
"""A count between two of the table may take so many times the straight line between their measured times."""
OTHER_ROUTINGS = 1.3
"""Another routing may take so many times its own floor, or what uniform routing takes of its floor if that is more."""
FUSED_TOKENS = 64
FUSED_LAUNCHES, LAUNCHES = 2, 4
"""Launches of a call with up to FUSED_TOKENS tokens, and with more."""
GAP_SECONDS = 2e-6
HOST_SECONDS = 15e-6
"""Submission above that of an empty operator of the same schema."""

MIN_SAMPLES = 3
"""From so many on their range says how far a time varies."""


class Standing(NamedTuple):
    """One rule and what became of it: `met`, `within must` (up to 1.2 times the target) or `missed`."""

    what: str
    allowed: str
    measured: str
    verdict: str


def of_cases(cases: Sequence[CaseResult]) -> Iterator[Standing]:
    """Cold cases against the table, the lines between its rows, and the rule for other routings."""
    cold = [case for case in cases if case.state == "cold"]
    uniform = {case.tokens: case for case in cold if case.routing == "uniform"}
    times = {tokens: 1e6 * case.median(Operator.name) for tokens, case in sorted(uniform.items())}
    known = [tokens for tokens in H200 if tokens in times]
    for tokens, time in times.items():
        what = f"M = {tokens}"
        if tokens in H200:
            must, target = H200[tokens]
            verdict = "met" if time <= target else "within must" if time <= must else "missed"
            yield Standing(what, f"{target:g} us, must {must:g} us", f"{time:.4g} us", verdict)
            continue
        for low, high in pairwise(known):
            if low < tokens < high:
                line = times[low] + (times[high] - times[low]) * (tokens - low) / (high - low)
                allowed = f"{BETWEEN:g} of the line {low} to {high}: {BETWEEN * line:.4g} us"
                yield Standing(what, allowed, f"{time:.4g} us", _met(time <= BETWEEN * line))
    for case in cold:
        if case.routing == "uniform" or case.tokens not in uniform:
            continue
        ratio = case.median(Operator.name) / case.floor
        same = uniform[case.tokens]
        allowed_ratio = max(OTHER_ROUTINGS, same.median(Operator.name) / same.floor)
        what = f"M = {case.tokens}, {case.routing}"
        yield Standing(what, f"{allowed_ratio:.2f} of its floor", f"{ratio:.2f}", _met(ratio <= allowed_ratio))


def of_launches(results: Sequence[LaunchResult]) -> Iterator[Standing]:
    """Counts of launches, and the largest idle gap between them where it could be timed."""
    for result in results:
        what, most = f"M = {result.tokens}", FUSED_LAUNCHES if result.tokens <= FUSED_TOKENS else LAUNCHES
        yield Standing(f"{what}, launches", str(most), str(result.launches), _met(result.launches <= most))
        if result.gaps:
            gap = max(result.gaps)
            yield Standing(
                f"{what}, largest gap", f"{1e6 * GAP_SECONDS:g} us", f"{1e6 * gap:.2f} us", _met(gap < GAP_SECONDS)
            )


def of_host(results: Sequence[HostResult]) -> Iterator[Standing]:
    """Submission above an empty operator, where there was one."""
    for result in results:
        if result.empty is not None:
            above = result.operator - result.empty
            allowed = f"{1e6 * HOST_SECONDS:g} us above an empty operator"
            yield Standing(f"M = {result.tokens}, host", allowed, f"{1e6 * above:.1f} us", _met(above <= HOST_SECONDS))


def _met(holds: bool) -> str:
    return "met" if holds else "missed"


def falling(cases: Sequence[CaseResult]) -> Iterator[str]:
    """Neighbouring counts of which the larger one is faster by more than the spread of the samples."""
    groups: dict[tuple[str, str], list[CaseResult]] = {}
    for case in cases:
        groups.setdefault((case.routing, case.state), []).append(case)
    for (routing, state), group in groups.items():
        for few, many in pairwise(sorted(group, key=lambda case: case.tokens)):
            if len(few.seconds[Operator.name]) < MIN_SAMPLES:
                continue  # no spread to speak of
            if max(many.seconds[Operator.name]) < min(few.seconds[Operator.name]):
                yield (
                    f"{routing}, {state}: M = {many.tokens} takes {1e6 * many.median(Operator.name):.4g} us, less than "
                    f"the {1e6 * few.median(Operator.name):.4g} us of M = {few.tokens}"
                )
