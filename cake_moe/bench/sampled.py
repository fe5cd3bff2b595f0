"""Verification of a few tokens of a large call, each with all of its rows."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from cake_moe import reference
from cake_moe.layout import EXPERTS, TOP_K
from cake_moe.testing.accumulate import Accumulation
from cake_moe.testing.compare import Report, check_routes, compare
from cake_moe.testing.inputs import MoeInputs
from cake_moe.testing.stages import Stages


def sample_tokens(num_tokens: int, count: int, seed: int) -> Tensor:
    """`count` distinct tokens, ascending, the first and the last among them; all where there are no more."""
    if num_tokens <= count:
        return torch.arange(num_tokens)
    generator = torch.Generator().manual_seed(seed)
    inner = 1 + torch.randperm(num_tokens - 2, generator=generator)[: max(count - 2, 0)]
    return torch.cat([torch.tensor([0, num_tokens - 1]), inner]).sort().values


def take_stages(stages: Stages, ids: Tensor, tokens: Tensor) -> Stages:
    """The dump that a call with these tokens alone would have left, from that of the whole call.

    stages: of the whole call, on any device; ids: int32 [M, 16] and tokens: int64 [n], on the device that the result is
    wanted on. A row keeps its content; its place follows the route tables of the few tokens.
    """
    device = ids.device
    routes = reference.route(ids[tokens])
    used = routes.row_route
    row_route = torch.full((TOP_K * len(tokens),), -1, dtype=torch.int32, device=device)
    row_route[: len(used)] = used
    there = tokens.to(stages.xq.device)
    old = stages.route_row[there].view(-1)[used.to(there.device).long()].long()
    return Stages(
        beta=stages.beta.to(device),
        linear_beta=stages.linear_beta.to(device),
        expert_offsets=routes.expert_offsets,
        row_route=row_route,
        route_row=routes.route_row,
        xq=stages.xq[there].to(device),
        xs=stages.xs[there].to(device),
        hq=stages.hq[old].to(device),
        hs=stages.hs[old].to(device),
        y=stages.y[old].to(device),
    )


def compare_sample(
    problem: MoeInputs, output: Tensor, stages: Stages, accumulation: Accumulation, tokens: Tensor
) -> Report:
    """The route tables of the whole call, and every check of `compare` on some of its tokens.

    A token's result depends on its own input and routes alone (other tokens decide only in which tile its rows lie), so
    each token can be judged without the others, by the same derived bounds. Any token's output must be written: the
    poison that the call met is a NaN, which no finite input gives.

    Args:
        problem: the call, on the device that evaluates. output: bf16 [M, 3584] and stages: its dump, on any device.
        accumulation: how the backend sums. tokens: int64 [n] on any device.

    Raises:
        Mismatch, TooManyDiffer: as `compare`; rows and tokens count within the sample, except in route tables.
        AssertionError: an output that was not written.
    """
    tables = ("expert_offsets", "row_route", "route_row")
    ids = problem.token_selected_experts
    device = ids.device
    tokens = tokens.to(device)
    check_routes(problem, replace(stages, **{name: getattr(stages, name).to(device) for name in tables}))
    usual = problem.input.isfinite().all(dim=1) & ((ids >= -1) & (ids < EXPERTS)).all(dim=1)
    unwritten = output.isnan().any(dim=1).to(device) & usual
    if unwritten.any():
        raise AssertionError(f"token {int(unwritten.nonzero()[0])}: the output holds NaN or was not written")
    return compare(
        problem.take(tokens),
        output[tokens.to(output.device)].to(device),
        take_stages(stages, ids, tokens),
        accumulation,
    )
