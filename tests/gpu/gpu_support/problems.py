"""Problems that share their memory: inputs and routings of 16384 tokens are made once, and a call takes a part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from cake_moe.layout import EXPERTS, MAX_TOKENS, TOP_K
from cake_moe.testing.accumulate import accumulation_of
from cake_moe.testing.compare import Report, compare
from cake_moe.testing.inputs import MoeInputs, make_inputs, make_route_weights
from cake_moe.testing.routings import expert_pool, make_routing
from cake_moe.testing.stages import run

from .exact_situ import exact_situ
from .plans import DEVICE

FEW = 128  # experts of the kinds that have weights of their own
_DISTINCT = 2048  # tokens of those kinds; a call of more repeats them
# What a routing's test varies beside: route weights in float32, default betas.
FLOAT_WEIGHTS = ("balanced", "zipf", "duplicates", "out_of_range")
DEFAULT_BETAS = ("one_group", "zipf")


def pool_of(kind: str) -> list[int]:
    return expert_pool(EXPERTS if kind == "normal" else FEW)


@cache
def _base(kind: str) -> MoeInputs:
    tokens = MAX_TOKENS if kind == "normal" else _DISTINCT
    return make_inputs(tokens, routing="balanced", kind=kind, experts=pool_of(kind), seed=11).to(DEVICE)


@cache
def _ids(routing: str, kind: str) -> Tensor:
    return make_routing(routing, MAX_TOKENS, seed=12, experts=pool_of(kind)).to(DEVICE)


@cache
def _route_weights(dtype: torch.dtype) -> Tensor:
    return make_route_weights(MAX_TOKENS, seed=13, dtype=dtype).to(DEVICE)


def token_part(num_tokens: int, available: int, kind: str) -> Tensor | slice:
    """Which of the `available` tokens a call takes: another part for every count, the NaN in its middle."""
    if num_tokens > available:
        return torch.arange(num_tokens) % available
    start = num_tokens * 37 % (available - num_tokens + 1)
    if kind == "nan_row":
        start = max(0, min(available // 2 - num_tokens // 2, available - num_tokens))
    return slice(start, start + num_tokens)


def problem_of(num_tokens: int, routing: str = "uniform", kind: str = "normal", ids: Tensor | None = None) -> MoeInputs:
    """On the GPU. ids: int32 [M, 16] of experts in `pool_of(kind)`, instead of a routing by name."""
    base = _base(kind)
    part = token_part(num_tokens, base.num_tokens, kind)
    weights = _route_weights(torch.float32 if routing in FLOAT_WEIGHTS else torch.bfloat16)
    start = num_tokens * 61 % (MAX_TOKENS - num_tokens + 1)
    default = routing in DEFAULT_BETAS
    return replace(
        base,
        input=base.input[part].contiguous(),
        token_selected_experts=_ids(routing, kind)[start : start + num_tokens] if ids is None else ids.to(DEVICE),
        token_final_scales=weights[start : start + num_tokens],
        situ_beta=None if default else base.situ_beta,
        situ_linear_beta=None if default else base.situ_linear_beta,
    )


def tile_edge_counts(slots: int, tile: int) -> list[int]:
    """Rows of some experts that end within two of a multiple of the tile, as far as there are slots for them."""
    wanted = [tile, tile + 1, 1, tile - 1, tile + 2, tile - 2, 2 * tile, 2 * tile + 1, 2 * tile - 1, 3 * tile + 1]
    counts = []
    for count in wanted:
        if count > 0 and sum(counts) + count <= slots:
            counts.append(count)
    return counts


def tile_edge_ids(num_tokens: int, tile: int, pool: Sequence[int], *, fill: bool = True) -> Tensor:
    """int32 [num_tokens, 16]: experts with the rows of `tile_edge_counts`, in slots all over the call.

    fill: the other slots go round the rest of the pool; otherwise they are -1. The first and the last expert of the
    pool are among those with counted rows.
    """
    slots = num_tokens * TOP_K
    counts = tile_edge_counts(slots, tile)
    order = torch.tensor([pool[-1], pool[0], *pool[1:-1]])
    ids = torch.repeat_interleave(order[: len(counts)], torch.tensor(counts))
    rest = slots - len(ids)
    others = order[len(counts) :]
    ids = torch.cat([ids, others[torch.arange(rest) % len(others)] if fill else torch.full((rest,), -1)])
    shuffled = ids[torch.randperm(slots, generator=torch.Generator().manual_seed(num_tokens))]
    return shuffled.view(num_tokens, TOP_K).int()


def check(problem: MoeInputs, what: str) -> Report:
    """One call on poisoned memory; every stage from its own dump and every row, judged in float64 on the GPU."""
    output, stages = run(problem)
    accumulation = accumulation_of(problem.num_tokens, DEVICE)
    report = compare(problem, output, stages, accumulation, situ=exact_situ())
    print(f"M={problem.num_tokens} in {len(problem.active_experts)} experts, {what}: {report}")
    return report
