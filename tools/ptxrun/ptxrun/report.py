"""What a run says: findings, counters, the trace of a deadlock."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Place:
    """An instruction of a run: PTX line, and who executed it (or issued the operation)."""

    kernel: str
    instruction: str
    line: int
    launch: int
    cta: int
    warp: int
    lanes: int

    def __str__(self) -> str:
        where = f"launch {self.launch}, CTA {self.cta}, warp {self.warp}, lanes {self.lanes:#010x}"
        kernel = self.kernel if len(self.kernel) <= 80 else f"{self.kernel[:60]}...{self.kernel[-17:]}"
        return f"{kernel}, line {self.line}: {self.instruction}\n    {where}"


@dataclass(frozen=True)
class Finding:
    """One cause. code: a key of `finding_codes()`; buffer and offset where memory is concerned; other: the party that
    it conflicts with; count: how often it happened."""

    code: str
    message: str
    place: Place
    other: Place | None
    buffer: str
    offset: int
    count: int

    def __str__(self) -> str:
        text = f"{self.code}: {self.message}"
        if self.count > 1:
            text += f" ({self.count} times)"
        text += f"\n  at {self.place}"
        if self.buffer:
            text += f"\n  on {self.buffer}+{self.offset:#x}"
        if self.other is not None:
            text += f"\n  and {self.other}"
        return text


@dataclass(frozen=True)
class LaunchCounters:
    """What one launch did. by_opcode, by_class: warp instructions. mma_steps: by kind and shape. The two maxima are
    bytes that copies had in flight at one time."""

    instructions: int
    by_opcode: dict[str, int]
    by_class: dict[str, int]
    mma_steps: dict[str, int]
    max_bytes_in_flight_cta: int
    max_bytes_in_flight_sm: int


@dataclass(frozen=True)
class BufferCounters:
    """Traffic of one buffer. read_histogram: how often a byte was read -> number of bytes."""

    bytes_read: int
    bytes_written: int
    read_histogram: dict[int, int]


@dataclass(frozen=True)
class Report:
    """The result of `run`. Memory has changed in place."""

    findings: list[Finding]
    launches: list[LaunchCounters]
    buffers: dict[str, BufferCounters] = field(repr=False)
    trace: str = ""

    @property
    def codes(self) -> Counter[str]:
        """How many findings there are of each code."""
        return Counter(finding.code for finding in self.findings)

    @property
    def instructions(self) -> int:
        """Warp instructions of all launches."""
        return sum(launch.instructions for launch in self.launches)

    def __str__(self) -> str:
        parts = [str(finding) for finding in self.findings]
        if self.trace:
            parts.append(self.trace)
        parts.append(f"{len(self.findings)} findings, {self.instructions} warp instructions")
        return "\n".join(parts)

    def raise_on_findings(self) -> None:
        """Raises AssertionError with the whole report if there is a finding."""
        if self.findings:
            raise AssertionError(str(self))
