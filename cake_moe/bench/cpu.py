"""The CPU as a device that cases are measured on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cake_moe.testing import stages
from cake_moe.testing.compare import compare
from cake_moe.testing.inputs import MoeInputs, RandomWeights

from .cases import CacheEviction, CacheState, Case, make_variants
from .clock import Clock, WallClock
from .contenders import Contender, MatmulLoop, Operator, StreamingRead
from .measure import Settings, Verified


class CpuBackend:
    """All tokens are verified; the arithmetic has no floor of its own, since no library's rate bounds it."""

    def __init__(
        self,
        weights: RandomWeights,
        settings: Settings,
        clock: Clock | None = None,
        evict: Callable[[], object] | None = None,
    ) -> None:
        """clock, evict: other than the wall clock and a write to 256 MB, for tests."""
        self.clock = WallClock() if clock is None else clock
        self._weights = weights
        self._settings = settings
        self._evict = CacheEviction() if evict is None else evict

    def variants(self, case: Case, count: int) -> list[MoeInputs]:
        return make_variants(case, self._weights, self._settings.seed, count)

    def verify(self, problem: MoeInputs) -> Verified:
        output, dump = stages.run(problem)
        return Verified(compare(problem, output, dump), problem.num_tokens, output)

    def contenders(self, variants: Sequence[MoeInputs]) -> Sequence[Contender]:
        contenders: list[Contender] = [StreamingRead(self._weights, variants), Operator(variants)]
        if self._settings.pool:
            contenders.append(MatmulLoop(variants, self._settings.pool))
        return contenders

    def settle(self, state: CacheState, contender: Contender, index: int) -> None:
        if state == "cold":
            self._evict()
        else:
            contender.call(index)

    def matmul_seconds(self, problem: MoeInputs) -> float:
        return 0.0
