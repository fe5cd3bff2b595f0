"""The plan as the tests see it: nothing in them names a path, a tile or a limit of its table."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

import cake_moe
from cake_moe._native import _C
from cake_moe.testing import plans
from cake_moe.testing.plans import PlanRow, weight_launches

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


def plan_rows() -> list[PlanRow]:
    return plans.plan_rows(*target())


def _instances(num_tokens: int) -> tuple[tuple[Any, ...], ...]:
    launches = plan(num_tokens)["launches"]
    return tuple(tuple(launch[key] for key in ("stage", "tile_rows", "threads", "cluster")) for launch in launches)


@cache
def first_of_each_instance() -> list[int]:
    """The smallest count of every combination of kernel instances, tiles, cluster and CTA sizes."""
    found: dict[tuple[Any, ...], int] = {}
    edges = {count for row in plan_rows() for count in (row.first, row.last)} | set(range(1, 257))
    for num_tokens in sorted(edges):
        gemms = {launch["tile_tokens"] for launch in weight_launches(plan(num_tokens))}
        found.setdefault((_instances(num_tokens), *sorted(gemms)), num_tokens)
    return sorted(found.values())


def expert_stages(num_tokens: int) -> tuple[str, str]:
    """Names of the stages that read FC1's and FC2's weights."""
    names = [launch["stage"] for launch in weight_launches(plan(num_tokens))]
    return names[0], names[-1]
