"""Expert choices with a name: the routings that every backend is tested and timed with.

All are pure functions of (name, number of tokens, seed, pool of experts). Source of the definitions: the operator's
numeric contract, "acceptance of results".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from cake_moe.layout import EXPERTS, TOP_K

INVALID_IDS = (EXPERTS, -2, 2**31 - 1, -(2**31), EXPERTS + 1, 2**20)
"""Ids that are neither an expert nor "no route"; `out_of_range` draws from them in this order."""


def expert_pool(count: int) -> list[int]:
    """`count` experts spread evenly over 0..895, both ends included (16 <= count <= 896)."""
    if not TOP_K <= count <= EXPERTS:
        raise ValueError(f"expert_pool: count must be in {TOP_K}..{EXPERTS}, got {count}")
    return [i * (EXPERTS - 1) // (count - 1) for i in range(count)]


def _draw(log_weights: torch.Tensor, num_tokens: int, generator: torch.Generator) -> torch.Tensor:
    """TOP_K distinct positions a token, drawn one after the other with the given probabilities (Gumbel top-k)."""
    chosen = torch.empty(num_tokens, TOP_K, dtype=torch.int64)
    for start in range(0, num_tokens, 1024):
        part = chosen[start : start + 1024]
        uniform = torch.rand(len(part), len(log_weights), generator=generator, dtype=torch.float64)
        part.copy_((log_weights - (-uniform.clamp_min(1e-300).log()).log()).topk(TOP_K).indices)
    return chosen


def _uniform(num_tokens: int, pool: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return pool[_draw(torch.zeros(len(pool), dtype=torch.float64), num_tokens, generator)]


def _balanced(num_tokens: int, pool: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return pool[torch.arange(num_tokens * TOP_K).view(num_tokens, TOP_K) % len(pool)]


def _subset(size: int) -> Callable[[int, torch.Tensor, torch.Generator], torch.Tensor]:
    def routing(num_tokens: int, pool: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        few = pool[torch.randperm(len(pool), generator=generator)[:size]]
        return _uniform(num_tokens, few, generator)

    return routing


def _zipf(num_tokens: int, pool: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    order = pool[torch.randperm(len(pool), generator=generator)]
    rank = torch.arange(1, len(pool) + 1, dtype=torch.float64)
    return order[_draw(-rank.log(), num_tokens, generator)]


def _duplicates(num_tokens: int, pool: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    one = pool[torch.randint(len(pool), (num_tokens, 1), generator=generator)]
    return one.expand(num_tokens, TOP_K)


def _no_route(num_tokens: int, pool: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    ids = _uniform(num_tokens, pool, generator)
    ids[torch.rand(ids.shape, generator=generator) < 0.25] = -1
    ids[3::5] = -1  # padding rows of a batch
    ids[0, :2] = torch.tensor([-1, int(pool[0])])
    return ids


def _out_of_range(num_tokens: int, pool: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    ids = _no_route(num_tokens, pool, generator)
    for count, token in enumerate(range(0, num_tokens, 3)):
        ids[token, (count * 7) % TOP_K] = INVALID_IDS[count % len(INVALID_IDS)]
    return ids


_ROUTINGS: dict[str, Callable[[int, torch.Tensor, torch.Generator], torch.Tensor]] = {
    "uniform": _uniform,
    "balanced": _balanced,
    "skew": _subset(64),
    "one_group": _subset(TOP_K),
    "zipf": _zipf,
    "duplicates": _duplicates,
    "no_route": _no_route,
    "out_of_range": _out_of_range,
}

ROUTING_NAMES = tuple(_ROUTINGS)


def make_routing(name: str, num_tokens: int, *, seed: int = 0, experts: Sequence[int] | None = None) -> torch.Tensor:
    """Expert ids int32 [num_tokens, 16] on the CPU.

    name: `uniform` (16 distinct of the pool), `balanced` (round robin over the pool), `skew` (uniform over 64 experts),
    `one_group` (every token on the same 16 experts, in an order of its own), `zipf` (16 distinct, p ~ 1/rank over a
    seeded order), `duplicates` (all 16 ids of a token equal), `no_route` (uniform, a quarter of the slots and every
    fifth token -1), `out_of_range` (no_route with one invalid id in every third token).
    experts: the pool of ids to draw from, at least 16; default all 896. `expert_pool(32)` keeps a test small.
    Raises ValueError for an unknown name or a pool of fewer than 16 experts.
    """
    if name not in _ROUTINGS:
        raise ValueError(f"make_routing: name must be one of {', '.join(ROUTING_NAMES)}, got {name!r}")
    pool = torch.arange(EXPERTS) if experts is None else torch.tensor(list(experts), dtype=torch.int64)
    if len(pool) < TOP_K:
        raise ValueError(f"make_routing: experts must hold at least {TOP_K} ids, got {len(pool)}")
    generator = torch.Generator().manual_seed(seed * 1000 + ROUTING_NAMES.index(name))
    return _ROUTINGS[name](num_tokens, pool, generator).to(torch.int32).contiguous()
