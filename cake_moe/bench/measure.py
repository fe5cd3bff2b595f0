"""Verifies a case, then times its contenders in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from cake_moe.testing import stages
from cake_moe.testing.compare import Report, compare
from cake_moe.testing.inputs import MoeInputs, RandomWeights

from .cases import EXPERT_BYTES, CacheEviction, Case, make_variants, route_count, touched_experts
from .clock import Clock
from .contenders import Contender, MatmulLoop, Operator, StreamingRead
from .results import CaseResult

MIN_ROUNDS = 5
ALL_EXPERTS_TOUCHED = 1024
"""From so many tokens on one variant is enough: a call streams through far more memory than a cache holds."""


@dataclass(frozen=True)
class Settings:
    """How to measure.

    rounds: samples of each contender, at least 5 of them and then no more once a case has taken `budget` seconds.
    pool: experts that the torch.mm loop holds in float32, 16.5 MB each; 0 leaves it out.
    """

    rounds: int = 15
    budget: float = 60.0
    pool: int = 64
    seed: int = 0


def verify(problem: MoeInputs) -> tuple[Report, torch.Tensor]:
    """Every stage against its float64 evaluation; the report and the verified output, bf16 [M, 3584].

    Raises:
        Mismatch, TooManyDiffer: the operator is wrong, so its time means nothing.
    """
    output, dump = stages.run(problem)
    return compare(problem, output, dump), output


def sample(
    contenders: Sequence[Contender],
    variants: int,
    settings: Settings,
    clock: Clock,
    before_call: Callable[[Contender, int], object],
) -> dict[str, list[float]]:
    """Seconds of every contender by name, taken in turns, so that a change of the machine's load meets all of them.

    before_call: brings the caches into the state of the case.
    """
    for contender in contenders:
        contender.call(0)
    samples: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    started = time.monotonic()
    for round_ in range(settings.rounds):
        if round_ >= MIN_ROUNDS and time.monotonic() - started > settings.budget:
            break
        index = round_ % variants
        for contender in contenders:
            before_call(contender, index)
            samples[contender.name].append(clock.seconds(lambda c=contender, i=index: c.call(i)))  # type: ignore[misc]
    return samples


def measure_case(
    case: Case, weights: RandomWeights, settings: Settings, clock: Clock, evict: CacheEviction
) -> CaseResult:
    """Verify a case, then time the operator, the floor and the baseline on it.

    Raises:
        Mismatch, TooManyDiffer: the operator is wrong.
    """
    rotation = min(settings.rounds, MIN_ROUNDS) if case.tokens < ALL_EXPERTS_TOUCHED else 1
    variants = make_variants(case, weights, settings.seed, rotation)
    first = variants[0]
    report, verified = verify(first)
    operator = Operator(variants)
    contenders: list[Contender] = [StreamingRead(weights, variants), operator]
    if settings.pool:
        contenders.append(MatmulLoop(variants, settings.pool))

    def cold(contender: Contender, index: int) -> None:
        evict()

    def warm(contender: Contender, index: int) -> None:
        contender.call(index)

    seconds = sample(contenders, len(variants), settings, clock, cold if case.state == "cold" else warm)
    if not torch.equal(operator.call(0).view(torch.int16), verified.view(torch.int16)):
        raise AssertionError(f"M = {case.tokens}, {case.routing}: the timed calls do not give the verified output")
    experts = len(touched_experts(first.token_selected_experts))
    return CaseResult(
        tokens=case.tokens,
        routing=case.routing,
        state=case.state,
        routes=route_count(first.token_selected_experts),
        experts=experts,
        touched_bytes=experts * EXPERT_BYTES,
        variants=len(variants),
        row_error=report.row_error,
        row_bound=report.row_bound,
        seconds=seconds,
    )
