#!/usr/bin/env python3
"""What every kernel instance takes of an SM: ci/kernel_resources.py [LIBRARY] [--markdown].

Registers, stack and static shared memory come from the fat binary (cuobjdump --dump-resource-usage), threads and the
paths that an instance serves from the plan. Dynamic shared memory, except of the sm_90a kernels, and tensor memory and
the bytes that the rings of an SM keep in flight of the sm_100a and sm_103a kernel come from the headers
(ci/kernel_configs.cu, compiled here). A spill, a
stack frame, or fewer than 64 KB in flight on a path that streams weights is a failure.

Needs nvcc, cuobjdump and an importable cake_moe. LIBRARY: libcake_ops.so, default the imported package's.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "ci"), str(ROOT / "tools" / "build")]

from toolchain import pip_nvcc, system_nvcc  # noqa: E402
from wheel_checks import find_cuobjdump, kernel_name  # noqa: E402

LEAST_IN_FLIGHT = 64 * 1024
STREAMING_PATHS = ("decode", "weight_bound")
"""Paths of the plan whose time is that of the weight stream."""

SM_REGISTERS, SM_THREADS, SM_SMEM, SM_TMEM_COLUMNS = 65536, 2048, 228 * 1024, 512
CTA_RESERVED_SMEM = 1024
WARP_REGISTER_UNIT = 256
WHOLE_CHIP = {"sm_90a": 132, "sm_100a": 148, "sm_103a": 160}

_FUNCTION = re.compile(r"Function (?P<symbol>\w+):\s+REG:(?P<registers>\d+) STACK:(?P<stack>\d+) SHARED:(?P<smem>\d+)")
_LOCAL = re.compile(r"LOCAL:(\d+)")


@dataclass(frozen=True)
class Function:
    """A kernel of the fat binary. stack and local: bytes a thread; smem: static bytes a CTA."""

    arch: str
    symbol: str
    registers: int
    stack: int
    local: int
    smem: int

    @property
    def name(self) -> str:
        return kernel_name(self.symbol)

    @property
    def tokens(self) -> int | None:
        """The token tile that it is instantiated for."""
        match = re.search(r"ConfigILi(\d+)E", self.symbol)
        return int(match[1]) if match else None

    @property
    def fused(self) -> bool:
        """Whether it routes and quantises for itself."""
        return "ELb1E" in self.symbol or self.name == "cake_moe_sm90_experts"


def read_functions(dump: str) -> Iterator[Function]:
    """Kernels out of what ``cuobjdump --dump-resource-usage`` prints."""
    for part in re.split(r"^arch = ", dump, flags=re.MULTILINE)[1:]:
        arch = part.split()[0]
        for match in _FUNCTION.finditer(part):
            local = _LOCAL.search(part, match.end())
            values = {key: int(match[key]) for key in ("registers", "stack", "smem")}
            yield Function(arch, match["symbol"], local=int(local[1]) if local else 0, **values)


@dataclass(frozen=True)
class Config:
    """What the headers say of an instance of the sm_100a kernel. Stage bytes: weights and their scales."""

    tokens: int
    fused: bool
    threads: int
    dynamic_smem: int
    tmem_columns: int
    slots: int
    fc1_stage_bytes: int
    fc2_stage_bytes: int


@dataclass(frozen=True)
class Neutral:
    """What the headers say of an architecture-neutral kernel with dynamic shared memory."""

    kernel: str
    threads: int
    dynamic_smem: int


@dataclass(frozen=True)
class Headers:
    """The output of ci/kernel_configs.cu. configs: by (tokens, fused); neutral: by kernel."""

    configs: dict[tuple[int, bool], Config]
    neutral: dict[str, Neutral]

    @classmethod
    def read(cls, lines: str) -> Headers:
        objects = [json.loads(line) for line in lines.splitlines()]
        configs = [Config(**values) for values in objects if "kernel" not in values]
        neutral = [Neutral(**values) for values in objects if "kernel" in values]
        by_instance = {(config.tokens, config.fused): config for config in configs}
        return cls(by_instance, {kernel.kernel: kernel for kernel in neutral})


@dataclass(frozen=True)
class Use:
    """threads of a CTA, and the paths of the plan that launch the instance."""

    threads: int
    paths: tuple[str, ...]


@cache
def plans_of(arch: str) -> list[dict[str, Any]]:
    """The plans of the first and the last count of every path."""
    from cake_moe._native import _C
    from cake_moe.testing.plans import plan_rows

    rows = plan_rows(arch, WHOLE_CHIP[arch])
    return [_C.make_plan(count, arch, WHOLE_CHIP[arch]) for row in rows for count in (row.first, row.last)]


def use_of(function: Function, neutral: dict[str, Neutral]) -> Use | None:
    """None for a kernel that no launch of the plan is of."""
    own = neutral.get(function.name)
    ring = neutral.get("cake_moe_finalize_ring")
    stage = re.sub(r"^cake_moe_(sm\d+_)?|(?<=finalize)_\w+$", "", function.name)
    threads, paths = 0, []
    for plan in plans_of(function.arch):
        fused = plan["launches"][0]["stage"] == "experts"
        for launch in plan["launches"]:
            if launch["stage"] != stage or function.tokens not in (None, launch["tile_tokens"]):
                continue
            if stage == "experts" and function.fused != fused:
                continue
            if stage == "finalize" and ring is not None and (launch["threads"] == ring.threads) != (own is ring):
                continue
            threads = max(threads, launch["threads"])
            paths.append(plan["path"])
    return Use(threads, tuple(dict.fromkeys(paths))) if paths else None


@dataclass(frozen=True)
class Row:
    """An instance; config: of an sm_100a kernel, neutral: of a neutral one with dynamic shared memory."""

    function: Function
    use: Use | None
    config: Config | None
    neutral: Neutral | None = None

    @property
    def dynamic_smem(self) -> int | None:
        """None where it is not known, or there is none."""
        known = self.config or self.neutral
        return known.dynamic_smem if known else None

    @property
    def smem(self) -> int:
        return self.function.smem + (self.dynamic_smem or 0)

    @property
    def ctas(self) -> int:
        """That fit an SM at once."""
        threads = self.config.threads if self.config else self.use.threads if self.use else 0
        if threads == 0:
            return 0
        of_warp = -(-self.function.registers * 32 // WARP_REGISTER_UNIT) * WARP_REGISTER_UNIT
        limits = [SM_REGISTERS // (of_warp * (threads // 32)), SM_THREADS // threads]
        limits.append(SM_SMEM // (self.smem + CTA_RESERVED_SMEM))
        if self.config:
            limits.append(SM_TMEM_COLUMNS // self.config.tmem_columns)
        return min(limits)

    @property
    def in_flight(self) -> tuple[int, int] | None:
        """Bytes of weights and scales that the slots of an SM's rings hold, in FC1 and in FC2."""
        if self.config is None:
            return None
        slots = self.config.slots * self.ctas
        return slots * self.config.fc1_stage_bytes, slots * self.config.fc2_stage_bytes

    def problems(self) -> list[str]:
        found = []
        what = f"{self.function.arch} {self.label}"
        if self.function.stack or self.function.local:
            found.append(f"{what}: {self.function.stack} bytes of stack, {self.function.local} of spills")
        if self.config and self.ctas < 1:
            found.append(f"{what}: does not fit an SM")
        known = self.config or self.neutral
        if self.use and known and known.threads != self.use.threads:
            found.append(f"{what}: {known.threads} threads, the plan says {self.use.threads}")
        streams = self.use is not None and any(path.startswith(STREAMING_PATHS) for path in self.use.paths)
        if streams and self.in_flight is not None and min(self.in_flight) < LEAST_IN_FLIGHT:
            found.append(f"{what}: {min(self.in_flight)} bytes in flight, at least {LEAST_IN_FLIGHT} are needed")
        return found

    @property
    def label(self) -> str:
        tile = "" if self.function.tokens is None else f", tile of {self.function.tokens}"
        return f"{self.function.name}{tile}{', fused' if self.config and self.function.fused else ''}"

    def cells(self) -> tuple[str, ...]:
        """Of the table, under HEADINGS but the first."""
        function, config, flight = self.function, self.config, self.in_flight
        threads = config.threads if config else self.use.threads if self.use else 0
        return (
            self.label,
            self._served(),
            str(threads or "-"),
            str(function.registers),
            str(function.stack + function.local),
            str(function.smem) if self.dynamic_smem is None else f"{function.smem} + {self.dynamic_smem}",
            str(config.tmem_columns) if config else "-",
            str(self.ctas) if config else "-",
            " / ".join(f"{size / 1024:.0f}" for size in flight) if flight else "-",
        )

    def _served(self) -> str:
        paths = self.use.paths if self.use else ()
        if len(paths) > _NAMED_PATHS:
            return f"{len(paths)} of {len({plan['path'] for plan in plans_of(self.function.arch)})}"
        return ", ".join(paths) or "none"


HEADINGS = (
    "architecture",
    "kernel",
    "paths",
    "threads",
    "registers",
    "spilled bytes",
    "static + dynamic shared memory",
)
HEADINGS += ("TMEM columns", "CTAs an SM", "KB in flight, FC1 / FC2")
_NAMED_PATHS = 3


def rows_of(functions: Iterable[Function], headers: Headers) -> list[Row]:
    """Every kernel with its use and its configuration, in the order of the table."""
    rows = []
    for function in functions:
        key = (function.tokens or 0, function.fused)
        config = headers.configs[key] if function.name == "cake_moe_sm100_experts" else None
        use = use_of(function, headers.neutral)
        rows.append(Row(function, use, config, headers.neutral.get(function.name)))
    return sorted(rows, key=lambda row: (row.function.arch, row.function.name, row.function.tokens or 0, row.label))


def print_table(rows: Iterable[Row], *, markdown: bool) -> None:
    """Architectures with the same figures share a line."""
    archs: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        archs.setdefault(row.cells(), []).append(row.function.arch)
    lines = [HEADINGS, *((", ".join(where), *cells) for cells, where in archs.items())]
    if markdown:
        lines.insert(1, ("---",) * len(HEADINGS))
        for line in lines:
            print("| " + " | ".join(line) + " |")
        return
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def compiled_configs(nvcc: Path, library_dir: Path | None) -> str:
    """What ci/kernel_configs.cu prints."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "configs"
        flags = ["-std=c++20", f"-I{ROOT / 'src'}", "-arch=sm_100a", *([f"-L{library_dir}"] if library_dir else [])]
        subprocess.run([nvcc, *flags, ROOT / "ci" / "kernel_configs.cu", "-o", program], check=True)
        return subprocess.run([program], capture_output=True, text=True, check=True).stdout


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("library", type=Path, nargs="?", help="libcake_ops.so")
    parser.add_argument("--cuobjdump", type=Path, default=find_cuobjdump())
    parser.add_argument("--arch", nargs="+", default=list(WHOLE_CHIP), help="architectures of the table")
    parser.add_argument("--markdown", action="store_true", help="as docs/performance.md has it")
    options = parser.parse_args(arguments)
    nvcc = system_nvcc() or pip_nvcc()
    if options.cuobjdump is None or nvcc is None:
        sys.exit("kernel_resources: needs cuobjdump (pip install nvidia-cuda-cuobjdump) and nvcc")
    library = options.library
    if library is None:
        from cake_moe import _native

        library = _native.FOLDER / "libcake_ops.so"
    command = [options.cuobjdump, "--dump-resource-usage", library]
    functions = list(read_functions(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    if not functions:
        sys.exit(f"kernel_resources: {library} holds no kernel")
    rows = rows_of(functions, Headers.read(compiled_configs(nvcc.path, nvcc.library_dir)))
    print_table([row for row in rows if row.function.arch in options.arch], markdown=options.markdown)
    problems = [problem for row in rows for problem in row.problems()]
    print(f"{len(rows)} kernel instances, {len(problems)} problems", *problems, sep="\n", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
