"""What a run on a GPU needs beside its cases: peers, and the measurements of launches and of the caller's thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec

import torch

from cake_moe.testing.inputs import MoeInputs, RandomWeights

from . import host, launches
from .cases import Case
from .contenders import PEER_NAMES, Operator
from .cuda import CudaBackend, Peer
from .grouped_mm import GroupedMatmul
from .humming import Humming, missing
from .measure import Settings
from .results import HostResult, LaunchResult

_Maker = Callable[[MoeInputs], Peer]


class GpuSession:
    """facts: printable conditions, among them which peers could not be timed and why."""

    def __init__(
        self,
        weights: RandomWeights,
        settings: Settings,
        launch: str,
        peers: Sequence[str] | None,
        counts: Sequence[int],
    ) -> None:
        """peers: of PEER_NAMES, None: all that are installed; counts: token counts of the cases to come.

        Raises:
            RuntimeError: torch sees no GPU.
        """
        if not torch.cuda.is_available():
            raise RuntimeError("--device cuda: torch sees no CUDA GPU")
        self.facts: dict[str, str] = {}
        makers = [maker for name in (PEER_NAMES if peers is None else peers) for maker in self._peer(name, counts)]
        self.backend = CudaBackend(weights, settings, launch, makers)
        triton = f"Triton {version('triton')}" if find_spec("triton") is not None else "no Triton: torch.amax reads"
        self.facts |= self.backend.facts() | {"floor's read": triton}

    def _peer(self, name: str, counts: Sequence[int]) -> list[_Maker]:
        """How to make a peer; nothing, and a line in the facts, where a package is missing."""
        if name == "bf16":
            self.facts[GroupedMatmul.name] = "bfloat16 weights, torch._grouped_mm between torch's own operators"
            return [GroupedMatmul]
        if (package := missing()) is not None:
            self.facts[Humming.name] = f"not timed: the package {package} is not installed"
            return []
        self.facts[Humming.name] = f"humming-kernels {version('humming-kernels')}, its own choice of kernels"
        return [partial(Humming, counts=counts)]

    def _problem(self, tokens: int) -> MoeInputs:
        return self.backend.variants(Case(tokens, "uniform", "cold"), 1)[0]

    def launches(self, counts: Sequence[int]) -> list[LaunchResult]:
        """The captured call of each count, with uniform routing."""
        results = []
        for tokens in counts:
            operator = Operator([self._problem(tokens)])
            operator.call(0)
            results.append(launches.measure_launches(tokens, partial(operator.call, 0)))
        return results

    def host(self, calls: int) -> list[HostResult]:
        """What a call costs the caller's thread; without a C++ compiler there is nothing to compare with."""
        empty: Callable[..., object] | None = None
        try:
            empty = host.empty_operator()
        except (OSError, RuntimeError) as error:
            self.facts["empty operator"] = f"not built, host times are absolute: {error}"
        problems = (self._problem(tokens) for tokens in host.COUNTS)
        return [host.measure_host(problem, empty, calls, torch.cuda.synchronize) for problem in problems]
