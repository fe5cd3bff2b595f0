"""Results as a table."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from cake_moe.layout import FC1_ROWS, FC2_ROWS, HIDDEN, INTERMEDIATE

from .contenders import MatmulLoop, Operator, StreamingRead
from .results import CaseResult

_MEASURED = ("floor", "cake_moe", "over floor", "torch.mm", "faster by", "TFLOP/s")
HEADINGS = ("M", "routing", "caches", "experts", "MB", *_MEASURED)
FLOP_PER_ROUTE = 2 * (FC1_ROWS * HIDDEN + FC2_ROWS * INTERMEDIATE)


def time_text(seconds: float) -> str:
    """Three significant digits with a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def table_row(case: CaseResult) -> tuple[str, ...]:
    """The cells of one case, in the order of HEADINGS; medians."""
    floor, operator, loop = StreamingRead.name, Operator.name, MatmulLoop.name
    over_floor, faster = case.ratio(operator, floor), case.ratio(loop, operator)
    return (
        str(case.tokens),
        case.routing,
        case.state,
        str(case.experts),
        f"{case.touched_bytes / 1e6:.0f}",
        time_text(case.median(floor)),
        time_text(case.median(operator)),
        f"{over_floor:.2f}" if over_floor else "-",
        time_text(case.median(loop)) if loop in case.seconds else "-",
        f"{faster:.1f}" if faster else "-",
        f"{case.routes * FLOP_PER_ROUTE / case.median(operator) / 1e12:.3f}",
    )


def result_table(cases: Iterable[CaseResult]) -> Table:
    """All cases, a line each."""
    table = Table(caption="medians; floor: streaming read of as many bytes as the case touches, same run")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in ("routing", "caches") else "right")
    for case in cases:
        table.add_row(*table_row(case))
    return table
