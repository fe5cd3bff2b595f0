"""Results as a picture: time against token count, with the floor; needs matplotlib."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from .contenders import MatmulLoop, Operator, StreamingRead
from .results import CaseResult, Session

# contender: colour, line, marker
_STYLES = {
    MatmulLoop.name: ("#9a9a9a", "-", "s"),
    Operator.name: ("#1f6fb4", "-", "o"),
    StreamingRead.name: ("#c0392b", "--", ""),
}


def check_available() -> None:
    """Raises ImportError in words where matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("the plot needs matplotlib: pip install 'cake-moe[bench]'") from error


def plot(session: Session, path: Path) -> None:
    """Write a picture, its format by the suffix of path: a panel for each routing and cache state, time over M."""
    check_available()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels: dict[tuple[str, str], list[CaseResult]] = defaultdict(list)
    for case in session.cases:
        panels[case.routing, case.state].append(case)
    figure = Figure(figsize=(1.5 + 5 * len(panels), 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, ((routing, state), cases) in zip(axes, panels.items(), strict=True):
        cases.sort(key=lambda case: case.tokens)
        for name, (colour, line, marker) in _STYLES.items():
            timed = [case for case in cases if name in case.seconds]
            if not timed:
                continue
            counts = [case.tokens for case in timed]
            times = [1e3 * case.median(name) for case in timed]
            axis.plot(counts, times, line, color=colour, marker=marker, label=name)
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
    machine = " · ".join(session.facts[name] for name in ("CPU", "CPU instruction set") if name in session.facts)
    figure.suptitle(machine, fontsize="small", color="#555555")
    metadata = {"Date": None} if path.suffix == ".svg" else None
    figure.savefig(path, metadata=metadata)
