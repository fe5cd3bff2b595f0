"""Verifies a case, then times its contenders in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from cake_moe.testing.compare import Report
from cake_moe.testing.inputs import MoeInputs

from .cases import EXPERT_BYTES, CacheState, Case, route_count, touched_experts
from .clock import Clock
from .contenders import Contender, Operator
from .results import CaseResult

MIN_ROUNDS = 5
ALL_EXPERTS_TOUCHED = 1024
"""From so many tokens on one variant is enough: a call streams through far more memory than a cache holds."""


@dataclass(frozen=True)
class Settings:
    """How to measure.

    rounds: samples of each contender, at least 5 of them and then no more once a case has taken `budget` seconds.
    pool: experts that the CPU's torch.mm loop holds in float32, 16.5 MB each; 0 leaves it out.
    verify_tokens: tokens that are compared with float64 where that would take long for all (on a GPU).
    """

    rounds: int = 15
    budget: float = 60.0
    pool: int = 64
    seed: int = 0
    verify_tokens: int = 16


@dataclass(frozen=True)
class Verified:
    """A verified call: what the comparison found, of how many tokens, and the output bf16 [M, 3584] of all of them."""

    report: Report
    tokens: int
    output: Tensor


class Backend(Protocol):
    """A device that cases are measured on."""

    clock: Clock

    def variants(self, case: Case, count: int) -> list[MoeInputs]:
        """Operands of `count` calls (one for warm caches) on the device."""

    def verify(self, problem: MoeInputs) -> Verified:
        """Compare a call with float64.

        Raises:
            Mismatch, TooManyDiffer: the operator is wrong, so its time means nothing.
        """

    def contenders(self, variants: Sequence[MoeInputs]) -> Sequence[Contender]:
        """What is timed on these operands; one of them is named `Operator.name`, one `READ`."""

    def settle(self, state: CacheState, contender: Contender, index: int) -> None:
        """Bring the caches into the state of the case before a contender is timed."""

    def matmul_seconds(self, problem: MoeInputs) -> float:
        """The arithmetic of a call at the device's matrix rate; 0 where that rate is no bound."""


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


def _require_verified_output(case: Case, operator: Contender, verified: Tensor) -> None:
    """What is timed gives the verified bits, on an output that held something else before."""
    operator.call(0).fill_(torch.nan)
    if not torch.equal(operator.call(0).view(torch.int16), verified.view(torch.int16)):
        raise AssertionError(f"M = {case.tokens}, {case.routing}: the timed calls do not give the verified output")


def measure_case(case: Case, backend: Backend, settings: Settings) -> CaseResult:
    """Verify a case, then time the operator, the floor and the baselines on it.

    Raises:
        Mismatch, TooManyDiffer: the operator is wrong.
        AssertionError: the timed calls do not give the verified output.
    """
    rotation = min(settings.rounds, MIN_ROUNDS) if case.tokens < ALL_EXPERTS_TOUCHED else 1
    variants = backend.variants(case, rotation)
    first = variants[0]
    verified = backend.verify(first)
    contenders = backend.contenders(variants)

    def before_call(contender: Contender, index: int) -> None:
        backend.settle(case.state, contender, index)

    seconds = sample(contenders, len(variants), settings, backend.clock, before_call)
    operator = next(contender for contender in contenders if contender.name == Operator.name)
    _require_verified_output(case, operator, verified.output)
    experts = len(touched_experts(first.token_selected_experts))
    return CaseResult(
        tokens=case.tokens,
        routing=case.routing,
        state=case.state,
        routes=route_count(first.token_selected_experts),
        experts=experts,
        touched_bytes=experts * EXPERT_BYTES,
        variants=len(variants),
        verified_tokens=verified.tokens,
        row_error=verified.report.row_error,
        row_bound=verified.report.row_bound,
        seconds=seconds,
        matmul_seconds=backend.matmul_seconds(first),
        notes={contender.name: contender.note for contender in contenders if contender.note},
    )
