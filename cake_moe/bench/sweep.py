"""``python -m cake_moe.bench.sweep``: where the limits of a GPU's path table belong, from measured times.

The plan is a pure function of the problem, and nothing in the product can override it. So each distinct row of the
table is made the only row of a copy of the source tree, which is built and timed at every count. Needs a checkout, its
build requirements and a GPU; the first build compiles everything, the others one file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from .cases import Case, make_weights, parse_counts
from .contenders import Operator

ROOT = Path(__file__).resolve().parents[2]
TABLES = Path("src/plan/tables.cpp")
ARRAYS = {"sm_90a": "kSm90Rows", "sm_100a": "kSm100Rows", "sm_103a": "kSm100Rows"}
_ARRAY = r"(constexpr PathRow {name}\[\] = \{{)(.*?)(\n\}};)"
_ROW = re.compile(r'\{(\w+),\s*"(\w+)",\s*(.*?),\s*"[^"]*"\}', re.DOTALL)
_SKIPPED = shutil.ignore_patterns(".*", "__pycache__", "*.so", "*.egg-info")


def _skipped(folder: str, names: list[str]) -> set[str]:
    """What a copy of the sources does without; a finished build names the folder that it was made in."""
    return set(_SKIPPED(folder, names)) | ({"build"} if Path(folder) == ROOT else set())


class Row(NamedTuple):
    """A row of the table: largest count as text, name of the path, and the C++ text of everything that shapes it."""

    max_tokens: str
    path: str
    shape: str


def read_rows(text: str, arch: str) -> list[Row]:
    """The rows of an architecture in the text of tables.cpp.

    Raises:
        ValueError: the text has no such table.
    """
    array = re.search(_ARRAY.format(name=ARRAYS[arch]), text, re.DOTALL)
    rows = [Row(*match) for match in _ROW.findall(array[2])] if array else []
    if not rows:
        raise ValueError(f"{TABLES}: no rows of {ARRAYS[arch]}")
    return rows


def distinct_rows(rows: Sequence[Row]) -> list[Row]:
    """The first of the rows that share a shape: limits and names do not change a launch."""
    found: dict[str, Row] = {}
    for row in rows:
        found.setdefault(row.shape, row)
    return list(found.values())


def only_row(text: str, arch: str, row: Row) -> str:
    """tables.cpp with one row for all counts of an architecture."""
    entry = f'\n    {{kMaxTokens, "{row.path}", {row.shape}, "the only row"}},'
    return re.sub(
        _ARRAY.format(name=ARRAYS[arch]), lambda match: match[1] + entry + match[3], text, count=1, flags=re.DOTALL
    )


Times = Mapping[str, Mapping[int, float]]
"""Seconds by path and count."""


def best_paths(times: Times, counts: Sequence[int]) -> list[tuple[str, int, int]]:
    """(path, first count, last count) of each run of counts with the same fastest path."""
    fastest = [(min(times, key=lambda path: times[path][count]), count) for count in counts]
    runs = [(path, [count for _, count in group]) for path, group in groupby(fastest, key=lambda pair: pair[0])]
    return [(path, group[0], group[-1]) for path, group in runs]


def time_table(times: Times, counts: Sequence[int]) -> Table:
    """Microseconds of every path at every count, the fastest one marked."""
    table = Table(title="microseconds a call, medians, graph, cold L2, uniform routing")
    for heading in ("M", *times):
        table.add_column(heading, justify="right")
    for count in counts:
        fastest = min(column[count] for column in times.values())
        cells = (f"{1e6 * t:.1f}{'*' if t == fastest else ' '}" for t in (column[count] for column in times.values()))
        table.add_row(str(count), *cells)
    return table


def _measure(counts: Sequence[int], rounds: int, seed: int) -> dict[int, float]:
    """Median seconds of the installed build at each count; nothing is verified."""
    from .cuda import Captured, CudaBackend
    from .measure import Settings

    backend = CudaBackend(make_weights(seed), Settings(seed=seed), "graph")
    times = {}
    for count in counts:
        variants = backend.variants(Case(count, "uniform", "cold"), 1)
        captured = Captured(Operator(variants), 1)
        times[count] = backend.cold_median(lambda captured=captured: captured.call(0), rounds)  # type: ignore[misc]
    return times


def _time_row(tree: Path, arguments: Sequence[str]) -> dict[int, float]:
    """Build a tree and measure it in a process of its own, since a library registers its operators once."""
    paths = [str(tree), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(build, cwd=tree, env=environment, check=True, stdout=sys.stderr)
    worker = [sys.executable, "-m", "cake_moe.bench.sweep", "--worker", *arguments]
    done = subprocess.run(worker, cwd=tree, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return {int(count): seconds for count, seconds in json.loads(done.stdout).items()}


def sweep(arch: str, rows: Sequence[Row], arguments: Sequence[str], tree: Path) -> Iterator[dict[int, float]]:
    """Times of each row in turn, built in `tree`, which is made."""
    shutil.copytree(ROOT, tree, ignore=_skipped, symlinks=True)
    text = (ROOT / TABLES).read_text()
    for row in rows:
        (tree / TABLES).write_text(only_row(text, arch, row))
        yield _time_row(tree, arguments)


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m cake_moe.bench.sweep", description=__doc__)
    parser.add_argument("--arch", choices=list(ARRAYS), default="sm_90a", help="whose table; the GPU must be one")
    parser.add_argument("-M", "--tokens", type=parse_counts, nargs="+", required=True, metavar="COUNTS")
    parser.add_argument("--paths", nargs="+", metavar="NAME", help="rows of the table by name (default: all)")
    parser.add_argument("--rounds", type=int, default=9, help="samples of each count")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the times")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.tokens = sorted({count for group in options.tokens for count in group})
    if options.worker:
        return options
    if not (ROOT / TABLES).exists():
        parser.error(f"needs a checkout, there is no {TABLES} in {ROOT}")
    rows = distinct_rows(read_rows((ROOT / TABLES).read_text(), options.arch))
    options.rows = [row for row in rows if options.paths is None or row.path in options.paths]
    if not options.rows:
        parser.error(f"no rows of the names {options.paths}; there are {', '.join(row.path for row in rows)}")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse_arguments(arguments)
    counts = options.tokens
    if options.worker:
        json.dump(_measure(counts, options.rounds, options.seed), sys.stdout)
        return 0
    passed = ["-M", *map(str, counts), "--rounds", str(options.rounds), "--seed", str(options.seed)]
    console = Console(highlight=False)
    times: dict[str, dict[int, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        measured = sweep(options.arch, options.rows, passed, Path(folder, "tree"))
        for row, column in zip(options.rows, measured, strict=True):
            times[row.path] = column
            console.print(f"{row.path}: timed")
    if options.json is not None:
        options.json.write_text(json.dumps(times, indent=1) + "\n")
    console.print(time_table(times, counts))
    for path, first, last in best_paths(times, counts):
        console.print(f"{path}: fastest from {first} to {last}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
