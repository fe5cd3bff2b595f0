"""What is measured: token counts, routings, cache states, and the operands of each."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from cake_moe.layout import (
    EXPERTS,
    FC1_GROUPS,
    FC1_ROW_BYTES,
    FC1_ROWS,
    FC2_GROUPS,
    FC2_ROW_BYTES,
    FC2_ROWS,
    HIDDEN,
    INTERMEDIATE,
    MAX_TOKENS,
)
from cake_moe.testing.inputs import MoeInputs, RandomWeights, make_inputs

EXPERT_BYTES = FC1_ROWS * (FC1_ROW_BYTES + FC1_GROUPS) + FC2_ROWS * (FC2_ROW_BYTES + FC2_GROUPS)
"""Bytes of weights and block scales of one expert."""

FLOP_PER_ROUTE = 2 * (FC1_ROWS * HIDDEN + FC2_ROWS * INTERMEDIATE)
"""Multiplications and additions of both products for one (token, slot)."""

CacheState = Literal["cold", "warm"]
CACHE_STATES: tuple[CacheState, ...] = ("cold", "warm")


@dataclass(frozen=True)
class Case:
    """tokens: M, 1..16384; routing: a name of `cake_moe.testing.routings`; state: of the caches before each call."""

    tokens: int
    routing: str
    state: CacheState


def parse_counts(text: str) -> list[int]:
    """Token counts from ``8``, ``1-4`` (each), ``0-64:16`` (every 16th) or ``1-64x2`` (each twice the one before).

    Raises:
        ValueError: another form, or a count outside 1..16384.
    """
    match = re.fullmatch(r"(\d+)(?:-(\d+)(?:(:|x)(\d+))?)?", text)
    if match is None:
        raise ValueError(f"token counts must look like 8, 1-4, 16-64:16 or 1-64x2, got {text!r}")
    first, last, kind = int(match[1]), int(match[2] or match[1]), match[3]
    step = int(match[4] or 1)
    if first < 1 or last > MAX_TOKENS or last < first or step < (2 if kind == "x" else 1):
        raise ValueError(f"token counts must ascend within 1..{MAX_TOKENS}, got {text!r}")
    counts = [first]
    while (following := counts[-1] * step if kind == "x" else counts[-1] + step) <= last:
        counts.append(following)
    return counts


def touched_experts(ids: Tensor) -> list[int]:
    """Experts that int32 ids ``[M, 16]`` name, ascending."""
    return ids[(ids >= 0) & (ids < EXPERTS)].unique().tolist()


def route_count(ids: Tensor) -> int:
    """Routes (token, slot) that cause work."""
    return int(((ids >= 0) & (ids < EXPERTS)).sum())


def padded_rows(ids: Tensor, unit: int) -> int:
    """Rows of all experts, each expert's rounded up to a multiple of `unit`."""
    counts = ids[(ids >= 0) & (ids < EXPERTS)].long().bincount()
    return int(((counts + unit - 1) // unit * unit).sum())


def make_weights(seed: int) -> RandomWeights:
    """Random prepared weights, all 896 experts present (2.08 GB), so that no read meets an unmapped page."""
    return RandomWeights(seed).touch(range(EXPERTS))


def make_variants(
    case: Case, weights: RandomWeights, seed: int, count: int, quant_scales: list[Tensor] | None = None
) -> list[MoeInputs]:
    """Operands of `count` calls of a case that differ in input and routing; one for the warm state.

    Only experts that are present in `weights` are read. quant_scales: those of all variants, as in a model; None lets
    each have its own.
    """
    count = 1 if case.state == "warm" else count
    variants = [
        make_inputs(case.tokens, routing=case.routing, seed=seed + variant, weights=weights, random_betas=False)
        for variant in range(count)
    ]
    if quant_scales is None:
        return variants
    return [replace(variant, quant_scales=quant_scales) for variant in variants]


class CacheEviction:
    """Replaces the contents of all caches by streaming through memory that nothing else uses."""

    def __init__(self, size: int = 256 << 20, device: torch.device | str = "cpu") -> None:
        """size: bytes, several times the last-level cache."""
        self._memory = torch.zeros(size // 8, dtype=torch.int64, device=device)

    def __call__(self) -> None:
        self._memory.add_(1)
