"""Results as plain data."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = 1


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
    row_error: float
    """Largest relative row error against float64, of the first variant."""
    row_bound: float
    """Its derived bound."""
    seconds: dict[str, list[float]]

    def median(self, contender: str) -> float:
        """Median seconds of a contender."""
        return statistics.median(self.seconds[contender])

    def ratio(self, contender: str, to: str) -> float | None:
        """Median time of a contender over that of another; None where one of them was not timed."""
        if contender not in self.seconds or to not in self.seconds:
            return None
        return self.median(contender) / self.median(to)


@dataclass
class Session:
    """One run of the benchmark."""

    facts: dict[str, str]
    """Machine, versions and conditions, as printable strings."""
    settings: dict[str, Any]
    cases: list[CaseResult] = field(default_factory=list)

    def save(self, path: Path) -> None:
        """Write as JSON."""
        path.write_text(json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Session:
        """Read what :meth:`save` wrote.

        Raises:
            ValueError: the file is not a result of this version.
        """
        data = json.loads(path.read_text())
        if not isinstance(data, dict) or data.pop("schema", None) != SCHEMA:
            raise ValueError(f"{path} is no benchmark result of schema {SCHEMA}")
        return cls(data["facts"], data["settings"], [CaseResult(**case) for case in data["cases"]])
