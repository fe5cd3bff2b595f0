"""The plan as the tests see it: nothing in them names a path, a tile or a limit of its table."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch

import cake_moe
from cake_moe._native import _C
from cake_moe.layout import MAX_TOKENS

DEVICE = torch.device("cuda", 0)
_WITHOUT_GPU = ("sm_90a", 132)


def arch() -> str:
    return target()[0]


@cache
def target() -> tuple[str, int]:
    """Architecture and SM count of the plan: the GPU's, else those of an H200, so that tests can be collected."""
    if not torch.cuda.is_available():
        return _WITHOUT_GPU
    properties = torch.cuda.get_device_properties(DEVICE)
    return f"sm_{properties.major}{properties.minor}a", properties.multi_processor_count


def has_kernels() -> bool:
    return arch() in cake_moe.build_info()["fused_moe_archs"]


def plan(num_tokens: int) -> dict[str, Any]:
    return _C.make_plan(num_tokens, *target())


class PlanRow(NamedTuple):
    """A row of the plan's table and the counts that it serves."""

    path: str
    first: int
    last: int

    @property
    def tile_tokens(self) -> int:
        """Rows of one expert that a tile of the expert GEMMs covers."""
        return max(launch["tile_tokens"] for launch in plan(self.first)["launches"] if launch["tile_rows"] > 0)


@cache
def plan_rows() -> list[PlanRow]:
    rows: list[PlanRow] = []
    for num_tokens in range(1, MAX_TOKENS + 1):
        path = plan(num_tokens)["path"]
        if rows and rows[-1].path == path:
            rows[-1] = rows[-1]._replace(last=num_tokens)
        else:
            rows.append(PlanRow(path, num_tokens, num_tokens))
    return rows


def _instances(num_tokens: int) -> tuple[tuple[Any, ...], ...]:
    launches = plan(num_tokens)["launches"]
    return tuple(tuple(launch[key] for key in ("stage", "tile_rows", "threads", "cluster")) for launch in launches)


@cache
def first_of_each_instance() -> list[int]:
    """The smallest count of every combination of kernel instances, tiles, cluster and CTA sizes."""
    found: dict[tuple[Any, ...], int] = {}
    edges = {count for row in plan_rows() for count in (row.first, row.last)} | set(range(1, 257))
    for num_tokens in sorted(edges):
        gemms = {launch["tile_tokens"] for launch in plan(num_tokens)["launches"] if launch["tile_rows"] > 0}
        found.setdefault((_instances(num_tokens), *sorted(gemms)), num_tokens)
    return sorted(found.values())


def expert_stages(num_tokens: int) -> tuple[str, str]:
    """Names of the stages that read FC1's and FC2's weights."""
    names = [launch["stage"] for launch in plan(num_tokens)["launches"] if launch["tile_rows"] > 0]
    return names[0], names[-1]
