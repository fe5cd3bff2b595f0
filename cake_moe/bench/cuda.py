"""A GPU as a device that cases are measured on."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from cake_moe.layout import EXPERTS, HIDDEN, MAX_TOKENS, TOP_K
from cake_moe.testing import stages
from cake_moe.testing.accumulate import accumulation_of
from cake_moe.testing.inputs import MoeInputs, RandomWeights, make_inputs

from . import device_read
from .cases import (
    EXPERT_BYTES,
    FLOP_PER_ROUTE,
    CacheEviction,
    CacheState,
    Case,
    make_variants,
    padded_rows,
    route_count,
    touched_experts,
)
from .clock import Clock, EventClock
from .contenders import Contender, MatmulLoop, Operator
from .measure import Settings, Verified
from .sampled import compare_sample, sample_tokens

DEVICE = torch.device("cuda", 0)
FLUSH_BYTES = 512 << 20
"""Written before each cold call, several times the L2."""
PADDED_ROWS = 8
"""The smallest token tile of a tensor core: an expert's rows are rounded up to it in the arithmetic floor."""
MATMUL_SIZE = 8192
LARGEST_PEER_ERROR = 0.03
"""Relative, 2-norm. Five roundings to bfloat16 give less than 0.01, wrong weights or routes about 1."""
_PEER_TOKENS = 4
_CALIBRATION_TOKENS = 1024
_TRIALS = 5
_HOLD_CYCLES = 200_000
"""About 0.1 ms, longer than the submission of any contender."""


class Peer(Protocol):
    """Another library's implementation of the layer, ready for any case."""

    name: str

    def candidates(self, variants: Sequence[MoeInputs]) -> Sequence[Contender]:
        """Ways to do the work of these calls, of which the fastest is timed."""


class Captured:
    """A contender whose calls were each captured once, as a whole, and are replayed."""

    def __init__(self, contender: Contender, variants: int) -> None:
        self.name, self.note = contender.name, contender.note
        self._contender = contender  # the graphs use its memory
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for index in range(variants):
                contender.call(index)
        torch.cuda.current_stream().wait_stream(side)
        self._graphs: list[torch.cuda.CUDAGraph] = []
        self._results: list[Tensor] = []
        for index in range(variants):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._results.append(contender.call(index))
            self._graphs.append(graph)

    def call(self, index: int) -> Tensor:
        self._graphs[index].replay()
        return self._results[index]


class CudaBackend:
    """Some tokens of a case are verified (`sampled`); the floor is a read of all bytes or the padded arithmetic.

    All cases share one set of quantisation scales, as calls of one model do, so that a peer prepares its weights once.
    left_out: printable reasons why a peer was not timed on a case.
    """

    def __init__(
        self,
        weights: RandomWeights,
        settings: Settings,
        launch: str,
        peers: Sequence[Callable[[MoeInputs], Peer]] = (),
    ) -> None:
        """launch: `graph` or `eager`. peers: made from a problem on the GPU that holds the weights and the scales."""
        self.clock: Clock = EventClock("graph: whole call captured once, replayed" if launch == "graph" else launch)
        self._capture = launch == "graph"
        self._weights = weights
        self._settings = settings
        model = make_inputs(
            _CALIBRATION_TOKENS, weights=weights, seed=settings.seed, routing="balanced", random_betas=False
        )
        self._scales = model.quant_scales
        self.left_out: dict[str, str] = {}
        self._evict = CacheEviction(FLUSH_BYTES, DEVICE)
        most_bytes = EXPERTS * EXPERT_BYTES + _io_bytes(MAX_TOKENS)
        self._memory = torch.empty(most_bytes // 4, dtype=torch.int32, device=DEVICE).random_()
        self.matmul_rate = self._measure_matmul()
        on_device = model.to(DEVICE)
        self._peers = [make(on_device) for make in peers]

    def facts(self) -> dict[str, str]:
        """Conditions that every case shares."""
        graphs = {count: self._empty_graph(count) for count in (1, 2, 4)}
        return {
            "matrix rate": f"{self.matmul_rate / 1e12:.0f} TFLOP/s, bf16 {MATMUL_SIZE}^3 through torch.mm",
            "graph of empty kernels": ", ".join(f"{count}: {1e6 * time:.1f} us" for count, time in graphs.items()),
            "L2": f"cold: {FLUSH_BYTES >> 20} MiB written before each sample",
        }

    def variants(self, case: Case, count: int) -> list[MoeInputs]:
        _release()
        made = make_variants(case, self._weights, self._settings.seed, count, self._scales)
        return [problem.to(DEVICE) for problem in made]

    def verify(self, problem: MoeInputs) -> Verified:
        output, dump = stages.run(problem)
        tokens = sample_tokens(problem.num_tokens, self._settings.verify_tokens, self._settings.seed)
        accumulation = accumulation_of(problem.num_tokens, DEVICE)
        report = compare_sample(self._on_host(problem), output, dump, accumulation, tokens)
        return Verified(report, len(tokens), output)

    def contenders(self, variants: Sequence[MoeInputs]) -> Sequence[Contender]:
        count = len(variants)
        ids = [variant.token_selected_experts for variant in variants]
        sizes = [len(touched_experts(part)) * EXPERT_BYTES + _io_bytes(len(part)) for part in ids]
        operator = self._fastest([Operator(variants)], count)
        chosen = [self._fastest(device_read.candidates(self._memory, sizes), count), operator]
        if all(route_count(part) == part.numel() for part in ids):  # no peer knows ids without an expert
            tokens = sample_tokens(len(ids[0]), _PEER_TOKENS, self._settings.seed).to(DEVICE)
            expected = MatmulLoop([variants[0].take(tokens)], _PEER_TOKENS * TOP_K).call(0)
            for peer in self._peers:
                try:
                    way = self._fastest(peer.candidates(variants), count)
                    _require_same_layer(way, expected, tokens)
                except RuntimeError as error:
                    self.left_out[f"{peer.name}, M = {len(ids[0])}, not timed"] = str(error)
                else:
                    chosen.append(way)
        return chosen

    def settle(self, state: CacheState, contender: Contender, index: int) -> None:
        if state == "cold":
            self._evict()
        else:
            contender.call(index)
            torch.cuda._sleep(_HOLD_CYCLES)

    def matmul_seconds(self, problem: MoeInputs) -> float:
        rows = padded_rows(problem.token_selected_experts, PADDED_ROWS)
        return rows * FLOP_PER_ROUTE / self.matmul_rate

    def _on_host(self, problem: MoeInputs) -> MoeInputs:
        return MoeInputs(
            problem.input.cpu(),
            problem.token_selected_experts.cpu(),
            problem.token_final_scales.cpu(),
            self._weights.fc1,
            self._weights.fc2,
            self._scales,
            None,
            None,
        )

    def _fastest(self, ways: Sequence[Contender], variants: int) -> Contender:
        """The way with the smallest median of a few cold calls of the first variant."""
        best = ways[0]
        if len(ways) > 1:
            tried = [self._launched(way, 1) for way in ways]
            medians = [self.cold_median(lambda way=way: way.call(0)) for way in tried]  # type: ignore[misc]
            best = ways[medians.index(min(medians))]
        return self._launched(best, variants)

    def _launched(self, contender: Contender, variants: int) -> Contender:
        return Captured(contender, variants) if self._capture else contender

    def cold_median(self, call: Callable[[], object], trials: int | None = None) -> float:
        """Median seconds of a call after another one, with a cold L2."""
        call()
        times = []
        for _ in range(trials or _TRIALS):
            self._evict()
            times.append(self.clock.seconds(call))
        return statistics.median(times)

    def _measure_matmul(self) -> float:
        """Operations a second of a large bf16 product of random matrices."""
        a, b = (torch.randn(MATMUL_SIZE, MATMUL_SIZE, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
        product = torch.empty_like(a)
        seconds = self.cold_median(lambda: torch.mm(a, b, out=product), 3 * _TRIALS)
        return 2 * MATMUL_SIZE**3 / seconds

    def _empty_graph(self, kernels: int) -> float:
        """Seconds of a graph of dependent kernels that do next to nothing."""
        graph, cell = torch.cuda.CUDAGraph(), torch.zeros(1, device=DEVICE)
        with torch.cuda.graph(graph):
            for _ in range(kernels):
                cell.add_(1)
        return self.cold_median(graph.replay, 3 * _TRIALS)


def _require_same_layer(peer: Contender, expected: Tensor, tokens: Tensor) -> None:
    """Some tokens of a peer's output against the layer in float32 without quantised activations.

    Raises:
        RuntimeError: they differ by more than bfloat16 explains.
    """
    difference = float((peer.call(0)[tokens] - expected).norm() / expected.norm())
    if not difference < LARGEST_PEER_ERROR:
        raise RuntimeError(f"{peer.name} does not compute the layer: a relative difference of {difference:.3g}")
    peer.note += f"{'; ' if peer.note else ''}differs from float32 by {difference:.4f}"


def _io_bytes(tokens: int) -> int:
    """Input and output of a call."""
    return 2 * tokens * HIDDEN * 2


def _release() -> None:
    """Give the memory of the last case's graphs and contenders back."""
    gc.collect()
    torch.cuda.empty_cache()
