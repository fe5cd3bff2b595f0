"""The rows of the plan's table, found from the plan itself: nothing here names a path, a tile or a limit."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from cake_moe._native import _C
from cake_moe.layout import MAX_TOKENS


class PlanRow(NamedTuple):
    """A path of the plan and the counts that it serves. tile_tokens: rows of one expert in a tile of FC1 and FC2."""

    path: str
    first: int
    last: int
    tile_tokens: int


def weight_launches(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """The launches of a plan that read weights."""
    return [launch for launch in plan["launches"] if launch["tile_rows"] > 0]


@cache
def plan_rows(arch: str, sm_count: int) -> list[PlanRow]:
    """Every row that some count from 1 to 16384 takes, in order. Arguments as of `_C.make_plan`."""
    rows: list[PlanRow] = []
    for num_tokens in range(1, MAX_TOKENS + 1):
        plan = _C.make_plan(num_tokens, arch, sm_count)
        if rows and rows[-1].path == plan["path"]:
            rows[-1] = rows[-1]._replace(last=num_tokens)
        else:
            tile = max(launch["tile_tokens"] for launch in weight_launches(plan))
            rows.append(PlanRow(plan["path"], num_tokens, num_tokens, tile))
    return rows
