"""Results as a picture: time against token count, with the floor; needs matplotlib."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

from .contenders import Operator
from .report import baselines
from .results import READ, CaseResult, Session

FLOOR = "floor"
_OPERATOR_STYLE = ("#1f6fb4", "-", "o")
_FLOOR_STYLE = ("#c0392b", "--", "")
_BASELINE_STYLES = (("#9a9a9a", "-", "s"), ("#c58a1c", "-", "^"), ("#5d9a3c", "-", "v"))
_FACTS = ("GPUs", "CPU", "CPU instruction set")


def check_available() -> None:
    """Raises ImportError in words where matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("the plot needs matplotlib: pip install 'cake-moe[bench]'") from error


_Style = tuple[str, str, str]


def _median(name: str, case: CaseResult) -> float:
    return case.median(name)


def _floor(case: CaseResult) -> float:
    return case.floor


def _series(cases: list[CaseResult]) -> dict[str, tuple[_Style, Callable[[CaseResult], float]]]:
    """Label, (colour, line, marker) and value of each line. The floor of a CPU is its read alone."""
    series: dict[str, tuple[_Style, Callable[[CaseResult], float]]] = {}
    for name, style in zip(baselines(cases), _BASELINE_STYLES, strict=False):
        series[name] = (style, partial(_median, name))
    series[Operator.name] = (_OPERATOR_STYLE, partial(_median, Operator.name))
    series[FLOOR if any(case.matmul_seconds for case in cases) else READ] = (_FLOOR_STYLE, _floor)
    return series


def plot(session: Session, path: Path) -> None:
    """Write a picture, its format by the suffix of path: a panel for each routing and cache state, time over M.

    Panels of fewer than three counts are left out where another one has them.
    """
    check_available()
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels: dict[tuple[str, str], list[CaseResult]] = defaultdict(list)
    for case in session.cases:
        panels[case.routing, case.state].append(case)
    if any(len(cases) >= 3 for cases in panels.values()):
        panels = defaultdict(list, {key: cases for key, cases in panels.items() if len(cases) >= 3})
    figure = Figure(figsize=(1.5 + 5 * len(panels), 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, ((routing, state), cases) in zip(axes, panels.items(), strict=True):
        cases.sort(key=lambda case: case.tokens)
        for name, ((colour, line, marker), value) in _series(session.cases).items():
            timed = [case for case in cases if name in case.seconds or name == FLOOR]
            if not timed:
                continue
            counts = [case.tokens for case in timed]
            times = [1e3 * value(case) for case in timed]
            axis.plot(counts, times, line, color=colour, marker=marker, markersize=4, label=name)
        axis.set_title(f"{routing} routing, {state} caches")
        axis.set_xlabel("tokens M")
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.grid(which="both", color="#e4e4e4", linewidth=0.5)
        axis.set_axisbelow(True)
    axes[0].set_ylabel("milliseconds a call, median")
    axes[0].yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes[0].legend(frameon=False)
    facts = [session.facts[name] for name in _FACTS if name in session.facts]
    machine = facts[0] if session.settings.get("device") == "cuda" else " · ".join(facts[-2:])
    figure.suptitle(machine, fontsize="small", color="#555555")
    metadata = {"Date": None} if path.suffix == ".svg" else None
    with rc_context({"svg.hashsalt": "cake_moe"}):  # the same results give the same file
        figure.savefig(path, metadata=metadata)
