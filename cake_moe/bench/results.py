"""Results as plain data."""

from __future__ import annotations

import json
import re
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = 2
READ = "streaming read"
"""The contender that reads the bytes of the case."""


@dataclass(frozen=True)
class CaseResult:
    """One case: what it touched, how it was verified, and the samples of every contender in seconds."""

    tokens: int
    routing: str
    state: str
    routes: int
    experts: int
    touched_bytes: int
    """Weights and block scales of the touched experts, in the first variant."""
    variants: int
    """Calls with different input and routing that the samples cycle through."""
    verified_tokens: int
    """Tokens of the first variant that were compared with float64."""
    row_error: float
    """Largest relative row error against float64, of these."""
    row_bound: float
    """Its derived bound."""
    seconds: dict[str, list[float]]
    matmul_seconds: float = 0.0
    """Arithmetic of the case at the matrix rate of the same run; 0 where that rate is no bound."""
    notes: dict[str, str] = field(default_factory=dict)
    """How a contender did its work in this case."""

    def median(self, contender: str) -> float:
        """Median seconds of a contender."""
        return statistics.median(self.seconds[contender])

    def ratio(self, contender: str, to: str) -> float | None:
        """Median time of a contender over that of another; None where one of them was not timed."""
        if contender not in self.seconds or to not in self.seconds:
            return None
        return self.median(contender) / self.median(to)

    @property
    def floor(self) -> float:
        """Seconds that no implementation can undercut: reading the bytes, or the arithmetic if that takes longer."""
        return max(self.median(READ), self.matmul_seconds)

    @property
    def floor_kind(self) -> str:
        """What the floor consists of: `read` or `matmul`."""
        return "matmul" if self.matmul_seconds > self.median(READ) else "read"


@dataclass(frozen=True)
class HostResult:
    """What a call costs the caller's thread: medians of eager calls, in seconds, before the GPU is done.

    Under ``torch.inference_mode()``, as engines run it, unless said.
    """

    tokens: int
    calls: int
    operator: float
    """``torch.ops.cake.fused_moe``."""
    function: float
    """``cake_moe.fused_moe``."""
    empty: float | None
    """An operator of the same schema that does nothing; None where it could not be built."""
    recording: float | None = None
    """``torch.ops.cake.fused_moe`` where gradients are recorded: it asks every floating tensor whether it needs one."""


@dataclass(frozen=True)
class LaunchResult:
    """The captured graph of one call."""

    tokens: int
    nodes: dict[str, int]
    """Count of each kind of node."""
    kernels: list[str]
    """Names in the order of execution; empty where no timestamps could be taken."""
    kernel_seconds: list[float]
    gaps: list[float]
    """Idle seconds between neighbouring kernels, medians; a dependent kernel that starts early leaves a gap of 0."""

    @property
    def launches(self) -> int:
        """Kernel, memset and memcpy nodes."""
        return sum(self.nodes.get(kind, 0) for kind in ("kernel", "memset", "memcpy"))


@dataclass
class Session:
    """One run of the benchmark."""

    facts: dict[str, str]
    """Machine, versions and conditions, as printable strings."""
    settings: dict[str, Any]
    cases: list[CaseResult] = field(default_factory=list)
    host: list[HostResult] = field(default_factory=list)
    launches: list[LaunchResult] = field(default_factory=list)

    def save(self, path: Path) -> None:
        """Write as JSON, times in whole nanoseconds, a list of numbers on one line."""
        text = json.dumps({"schema": SCHEMA, **_rounded(asdict(self))}, indent=1)
        path.write_text(re.sub(r"\[[^][{}]*\]", lambda match: " ".join(match[0].split()), text) + "\n")

    @classmethod
    def load(cls, path: Path) -> Session:
        """Read what :meth:`save` wrote.

        Raises:
            ValueError: the file is not a result of this version.
        """
        data = json.loads(path.read_text())
        if not isinstance(data, dict) or data.pop("schema", None) != SCHEMA:
            raise ValueError(f"{path} is no benchmark result of schema {SCHEMA}")
        return cls(
            data["facts"],
            data["settings"],
            [CaseResult(**case) for case in data["cases"]],
            [HostResult(**host) for host in data["host"]],
            [LaunchResult(**launches) for launches in data["launches"]],
        )


def _rounded(value: Any) -> Any:
    """A nested value with every float rounded to nine decimals."""
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return round(value, 9) if isinstance(value, float) else value
