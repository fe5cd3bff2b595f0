"""What the comparator answers: reports of what it compared, or the element that no correct backend can give."""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_DIFFERING = 1e-3  # of the elements of a stage


class Mismatch(AssertionError):
    """One element that no correct backend can give.

    stage; row (token, or row of the route tables) and column; expected and got (codes or values as text); bound: what
    was allowed.
    """

    def __init__(
        self, stage: str, row: int, column: int, expected: object, got: object, bound: object = "exact"
    ) -> None:
        super().__init__(f"{stage}: row {row}, column {column}: expected {expected}, got {got}, bound {bound}")
        self.stage, self.row, self.column = stage, row, column
        self.expected, self.got, self.bound = expected, got, bound


class TooManyDiffer(AssertionError):
    """Every differing element of a stage is within its bound, but there are more of them than MAX_DIFFERING."""


@dataclass
class StageReport:
    """elements compared; differing from the bits of the exact sum, each within its bound."""

    stage: str
    elements: int = 0
    differing: int = 0

    def finish(self) -> StageReport:
        if self.differing > MAX_DIFFERING * self.elements:
            raise TooManyDiffer(
                f"{self.stage}: {self.differing} of {self.elements} elements differ from the exactly summed ones, "
                f"more than {MAX_DIFFERING:g} of them"
            )
        return self


@dataclass
class Report:
    """What `compare` found. row_error: the largest relative error of an output row; row_bound: that row's bound."""

    stages: dict[str, StageReport] = field(default_factory=dict)
    row_error: float = 0.0
    row_bound: float = 0.0
    nan_rows: int = 0

    def __str__(self) -> str:
        stages = ", ".join(f"{s.stage} {s.differing}/{s.elements}" for s in self.stages.values())
        row = f"max row error {self.row_error:.2e} (bound {self.row_bound:.2e})"
        return f"differing: {stages}; {row}; NaN rows {self.nan_rows}"
