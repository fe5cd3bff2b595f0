#!/usr/bin/env python3
"""Judges racecheck's reports: python3 ci/racecheck_known.py CODE LOG...

racecheck does not know the barriers that order bulk copies and cp.async (mbarriers in shared memory), so it reports
every reuse of a ring's slot. A pair of accesses may stand only with an entry of KNOWN that names the kernel,
the kinds of both instructions and the barrier. Exit status 1 where a pair has none. The logs must hold mangled names
(compute-sanitizer --demangle no). CODE: the library, or a folder of cubins. Needs cuobjdump.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Known(NamedTuple):
    """kernel: part of its name; instructions: kinds of the two, in either order; barrier: what orders them."""

    kernel: str
    instructions: frozenset[str]
    barrier: str


_FC1 = (
    "weights_consumed and tokens_consumed[slot]: a warp arrives after its reads, the producers wait for all before "
    "they refill the slot; weights_arrived and tokens_arrived[slot]: completed by the copy's bytes or cp.async's "
    "arrival, readers wait for it"
)
_FC2 = (
    "unit_consumed[slot]: a warp arrives after its reads, the producer waits for all before it refills the slot; "
    "unit_arrived[slot]: completed by the copy's bytes and the producer's arrivals, readers wait for it"
)
_EXPERTS = (
    "slot_consumed[slot]: a warp arrives after its reads, the producer waits for all before it refills the slot; "
    "slot_arrived[slot]: completed by the copy's bytes, readers wait for it"
)
_HAND_OVER = (
    "sums_arrived: a warp arrives after it has written its half of the sums, its counterpart waits before it "
    "reads them; hidden_arrived and hidden_consumed[buffer]: the hidden warp arrives after it has written a tile, "
    "consumers wait before and arrive after their reads; prepared: the warps that route and quantise arrive when they "
    "have written, every reader waits"
)
_SM100_EXPERTS = (
    "routing: the CTA's barrier in grid.barrier_arrive, which racecheck does not follow where a warp that has diverged "
    "takes it collectively; items[i]: item_claimed[i] after the write, item_done[i] after the reads"
)
_FINALIZE = (
    "consumed[slot]: a warp arrives after its reads, the filling warp waits for all before it refills the slot; "
    "arrived[slot]: its arrivals and the copies' bytes, readers wait for it"
)
KNOWN = [
    Known("cake_moe_sm90_experts", frozenset({"UBLKCP", "LDS"}), _EXPERTS),
    Known("cake_moe_sm90_experts", frozenset({"STS", "LDS"}), _HAND_OVER),
    Known("cake_moe_sm90_experts", frozenset({"STS", "LDSM"}), _HAND_OVER),
    Known("cake_moe_sm90_fc1", frozenset({"UBLKCP", "LDS"}), _FC1),
    Known("cake_moe_sm90_fc1", frozenset({"LDGSTS", "LDSM"}), _FC1),
    Known("cake_moe_sm90_routed_fc1", frozenset({"UBLKCP", "LDS"}), _FC1),
    Known("cake_moe_sm90_routed_fc1", frozenset({"LDGSTS", "LDSM"}), _FC1),
    Known("cake_moe_sm90_fc2", frozenset({"UBLKCP", "LDS"}), f"{_FC2}; its finalise: {_FINALIZE}"),
    Known("cake_moe_sm90_fc2", frozenset({"STS", "LDS"}), f"{_FC2}; its finalise: {_FINALIZE}"),
    Known("cake_moe_sm100_experts", frozenset({"STS", "LDS"}), _SM100_EXPERTS),
    Known("cake_moe_finalize", frozenset({"UBLKCP", "LDS"}), _FINALIZE),
    Known("cake_moe_finalize", frozenset({"STS", "LDS"}), _FINALIZE),
]

Pair = tuple[str, int, str, int]
_ACCESS = re.compile(r"(?:Read|Write|Atomic\w*) access at (\S+?)(?:\([^\n]*?\))?\+0x([0-9a-f]+)", re.IGNORECASE)
_SUMMARY = re.compile(r"RACECHECK SUMMARY: (\d+) hazards? displayed")
_FUNCTION = re.compile(r"Function\s*:\s*(\S+)")
_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*)")


def parse_log(text: str) -> set[Pair]:
    """(kernel, offset, kernel, offset) of every reported pair. One report may name several partners of its first."""
    pairs: set[Pair] = set()
    first: tuple[str, int] | None = None
    for line in text.splitlines():
        found = _ACCESS.search(line)
        if found is None:
            continue
        access = (found[1], int(found[2], 16))
        if "Race reported" in line:
            first = access
        elif first is not None:
            pairs.add((*first, *access))
    return pairs


def summary_hazards(text: str) -> int:
    """Hazards that the log's summary counts. Raises ValueError where there is none: the tool did not end."""
    found = _SUMMARY.search(text)
    if found is None:
        raise ValueError("no summary: racecheck did not end")
    return int(found[1])


def parse_sass(text: str) -> dict[tuple[str, int], str]:
    """Opcode without modifiers of (function, offset)."""
    opcodes: dict[tuple[str, int], str] = {}
    function = ""
    for line in text.splitlines():
        if (header := _FUNCTION.search(line)) is not None:
            function = header[1]
        elif (found := _INSTRUCTION.search(line)) is not None:
            opcodes[function, int(found[1], 16)] = found[2]
    return opcodes


def judge(
    pairs: Iterable[Pair], opcodes: dict[tuple[str, int], str], known: list[Known] = KNOWN
) -> tuple[list[str], list[str]]:
    """Accepted and unknown pairs, described."""
    accepted, unknown = [], []
    for kernel, at, other_kernel, other_at in sorted(pairs):
        kinds = opcodes.get((kernel, at), "?"), opcodes.get((other_kernel, other_at), "?")
        entry = next(
            (k for k in known if k.kernel in kernel and kernel == other_kernel and k.instructions == {*kinds}), None
        )
        if entry is None:
            unknown.append(f"{kernel}: {kinds[0]} at {at:#x} and {kinds[1]} at {other_at:#x}")
        else:
            accepted.append(f"{entry.kernel}: {' and '.join(sorted(entry.instructions))}: {entry.barrier}")
    return accepted, unknown


def read_opcodes(code: Path) -> dict[tuple[str, int], str]:
    opcodes: dict[tuple[str, int], str] = {}
    for file in sorted(code.glob("*.cubin")) if code.is_dir() else [code]:
        dump = subprocess.run(["cuobjdump", "-sass", file], capture_output=True, text=True, check=True)
        opcodes |= parse_sass(dump.stdout)
    return opcodes


def main(code: Path, logs: list[Path]) -> int:
    texts = [log.read_text() for log in logs]
    pairs = {pair for text in texts for pair in parse_log(text)}
    hazards = sum(map(summary_hazards, texts))
    if hazards and not pairs:
        print(f"racecheck: {hazards} hazards of which no pair could be read")
        return 1
    accepted, unknown = judge(pairs, read_opcodes(code) if pairs else {})
    for text, count in sorted(Counter(accepted).items()):
        print(f"racecheck: {count} pairs known: {text}")
    for text in unknown:
        print(f"racecheck: UNKNOWN: {text}")
    print(f"racecheck: {len(accepted)} known pairs, {len(unknown)} unknown")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]]))
