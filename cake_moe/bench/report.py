"""Results as tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from rich.table import Table

from .cases import FLOP_PER_ROUTE
from .contenders import Operator
from .results import READ, CaseResult, HostResult, LaunchResult
from .targets import Standing

_Cell = Callable[[CaseResult], str]
SPREAD = "min .. max"
_LEFT = ("routing", "caches", "kernels")


def time_text(seconds: float) -> str:
    """Three significant digits with a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _spread(case: CaseResult) -> str:
    samples = case.seconds[Operator.name]
    return f"{time_text(min(samples))} .. {time_text(max(samples))}"


def _floor(case: CaseResult) -> str:
    return time_text(case.floor) + (" (mm)" if case.floor_kind == "matmul" else "")


def baselines(cases: Iterable[CaseResult]) -> list[str]:
    """Names of the contenders that are neither the operator nor the floor, in the order of their first case."""
    names = dict.fromkeys(name for case in cases for name in case.seconds)
    return [name for name in names if name not in (Operator.name, READ)]


def columns(cases: Sequence[CaseResult]) -> dict[str, _Cell]:
    """Headings and what stands under each of them for a case; all times are medians."""
    found: dict[str, _Cell] = {
        "M": lambda case: str(case.tokens),
        "routing": lambda case: case.routing,
        "caches": lambda case: case.state,
        "experts": lambda case: str(case.experts),
        "MB": lambda case: f"{case.touched_bytes / 1e6:.0f}",
        "floor": _floor,
        Operator.name: lambda case: time_text(case.median(Operator.name)),
        SPREAD: _spread,
        "over floor": lambda case: f"{case.median(Operator.name) / case.floor:.2f}",
    }
    for name in baselines(cases):
        found[name] = partial(_time_of, name)
        found[f"x {name.split()[0]}"] = partial(_faster_than, name)
    found["TFLOP/s"] = lambda case: f"{case.routes * FLOP_PER_ROUTE / case.median(Operator.name) / 1e12:.3g}"
    return found


def _time_of(name: str, case: CaseResult) -> str:
    return time_text(case.median(name)) if name in case.seconds else "-"


def _faster_than(name: str, case: CaseResult) -> str:
    ratio = case.ratio(name, Operator.name)
    return "-" if ratio is None else f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}"


def result_table(cases: Sequence[CaseResult]) -> Table:
    """All cases, a line each."""
    table = Table(
        caption="medians; floor: cold read of the bytes of the case or, (mm), its arithmetic at the matrix rate, same "
        "run; x NAME: how often cake_moe is done in NAME's time"
    )
    found = columns(cases)
    for heading in found:
        table.add_column(heading, justify="left" if heading in _LEFT else "right", no_wrap=heading == SPREAD)
    for case in cases:
        table.add_row(*(cell(case) for cell in found.values()))
    return table


def host_table(results: Iterable[HostResult]) -> Table:
    """Cost of a call for the caller's thread."""
    table = Table(title="host time of an eager call under inference mode, medians, workspace and output given")
    headings = ("M", "calls", "empty operator", "operator", "above empty", "cake_moe.fused_moe", "gradients recorded")
    for heading in headings:
        table.add_column(heading, justify="right")
    for result in results:
        above = None if result.empty is None else result.operator - result.empty
        times = (result.empty, result.operator, above, result.function, result.recording)
        cells = ("-" if time is None else time_text(time) for time in times)
        table.add_row(str(result.tokens), str(result.calls), *cells)
    return table


def _short(name: str) -> str:
    """The function's own name in a kernel's signature."""
    match = re.search(r"(\w+)\s*[<(]", name)
    return match[1] if match else name


def launch_table(results: Iterable[LaunchResult]) -> Table:
    """Nodes of the captured graph of a call and the time line of a replay."""
    table = Table(
        title="launches of a captured call; times from the profiler, warm L2",
        caption="a dependent kernel may start before its predecessor ends: then their times overlap and the gap is 0",
    )
    for heading in ("M", "launches", "nodes", "kernels", "largest gap"):
        table.add_column(heading, justify="left" if heading in _LEFT else "right")
    for result in results:
        nodes = ", ".join(f"{count} {kind}" for kind, count in sorted(result.nodes.items()))
        timed = zip(result.kernels, result.kernel_seconds, strict=True)
        times = ", ".join(f"{_short(name)} {time_text(seconds)}" for name, seconds in timed) or "no time line"
        gap = time_text(max(result.gaps)) if result.gaps else "-"
        table.add_row(str(result.tokens), str(result.launches), nodes, times, gap)
    return table


def standing_table(standings: Iterable[Standing]) -> Table:
    """Results against this project's own targets for the H200."""
    table = Table(title="this project's own targets for the H200 (1.2 to 1.4 times the floor; must: 1.2 times that)")
    for heading in ("rule", "allowed", "measured", "verdict"):
        table.add_column(heading)
    for standing in standings:
        table.add_row(*standing, style=None if standing.verdict == "met" else "bold")
    return table
