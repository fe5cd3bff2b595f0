"""Problems small enough for the interpreter, and how a call's results are judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from ptx_operator import Call
from ptxrun.api import Schedule
from torch import Tensor

from cake_moe.layout import TOP_K
from cake_moe.testing.accumulate import gpu_accumulation
from cake_moe.testing.compare import compare
from cake_moe.testing.inputs import MoeInputs, make_inputs, shared_weights
from cake_moe.testing.routings import expert_pool, make_routing
from cake_moe.testing.stages import Stages, run

SCHEDULES: list[Schedule] = ["early", "late", "random"]
POOL = expert_pool(16)
WIDE_POOL = expert_pool(20)
NO_ROUTE = -1
FC1_PARTS = 12  # of a tile: src/kernels/sm90/fc2/config.h
KINDS_OF_INPUT: list[dict[str, Any]] = [
    {"routing": "out_of_range", "route_weight_dtype": torch.float32},
    {"routing": "duplicates", "random_betas": False},
    {"kind": "subnormal", "zero_weights": True},
    {"kind": "nan_row"},
    {"kind": "wide"},
]


def id_of(options: dict[str, Any]) -> str:
    """Name of an entry of KINDS_OF_INPUT."""
    return "-".join(str(value) for value in options.values())


def judge(problem: MoeInputs, call: Call) -> None:
    """Every stage from its own dumped input, as on a GPU."""
    output, stages = call.result()
    capability = int(call.arch.rstrip("a"))
    report = compare(problem, output, stages, gpu_accumulation(capability, problem.num_tokens))
    print(f"M={problem.num_tokens}: {report}")


def same_bits(problem: MoeInputs, output: Tensor, stages: Stages) -> None:
    """Integer-valued inputs: all up to FC2's sums is exact in any order and must be the CPU backend's bits."""
    _, expected = run(problem)
    rows = int(expected.expert_offsets[-1])
    for name in ("expert_offsets", "route_row", "xq", "xs"):
        assert torch.equal(getattr(stages, name), getattr(expected, name)), name
    for name in ("row_route", "hq", "hs"):
        assert torch.equal(getattr(stages, name)[:rows], getattr(expected, name)[:rows]), name


def same_under(problem: MoeInputs, schedules: Sequence[tuple[Schedule, int]], arch: str, sm_count: int) -> None:
    """The whole operator under each (schedule, seed), without a finding: the first run is judged and has the CPU
    backend's bits, the others have those of the first in every section."""
    rows = int((problem.token_selected_experts >= 0).sum())
    first: dict[str, Tensor] = {}
    for schedule, seed in schedules:
        call = Call(problem, arch, sm_count=sm_count)
        call.run(schedule, seed).raise_on_findings()
        output, stages = call.result()
        got = {"output": output.view(torch.int16), "route_row": stages.route_row, "xq": stages.xq, "xs": stages.xs}
        got |= {name: getattr(stages, name)[:rows].view(torch.uint8) for name in ("row_route", "hq", "hs", "y")}
        if not first:
            judge(problem, call)
            same_bits(problem, output, stages)
            first = got
        for name, value in got.items():
            assert torch.equal(value, first[name]), f"{name} under {schedule}, seed {seed}"


def spread(num_tokens: int, routing: str, tokens: int = 6, slots: int = TOP_K) -> MoeInputs:
    """A problem of 20 experts whose ids are those of the named routing in the first `slots` slots of a few tokens, and
    no route elsewhere. `nan`: uniform, and the first of these tokens holds a NaN."""
    problem = make_inputs(num_tokens, kind="integer", experts=WIDE_POOL, seed=num_tokens)
    live = torch.linspace(0, num_tokens - 1, min(tokens, num_tokens)).long()
    name = "uniform" if routing == "nan" else routing
    ids = torch.full_like(problem.token_selected_experts, NO_ROUTE)
    ids[live, :slots] = make_routing(name, len(live), seed=num_tokens, experts=WIDE_POOL)[:, :slots]
    problem = replace(problem, token_selected_experts=ids)
    if routing == "nan":
        problem.input[live[0], 100] = torch.nan
    shared_weights("unit").touch(problem.active_experts)
    return problem


def thin_out(problem: MoeInputs, routes: int) -> MoeInputs:
    """The problem with `routes` routes in all, spread over its tokens; the other slots are empty."""
    ids = problem.token_selected_experts
    keep = torch.zeros_like(ids, dtype=torch.bool)
    keep.view(-1)[:: max(1, ids.numel() // routes)][:routes] = True
    return replace(problem, token_selected_experts=torch.where(keep, ids, NO_ROUTE))


def crowded(num_tokens: int, rows: dict[int, int], **options: Any) -> MoeInputs:
    """A problem with `rows[i]` rows in the i-th expert of the pool, one route a token, and empty slots: tiles that are
    full, nearly so, or just begun, whatever the number of tokens."""
    problem = make_inputs(num_tokens, experts=POOL, seed=num_tokens, **({"kind": "integer"} | options))
    chosen = torch.repeat_interleave(torch.tensor([POOL[i] for i in rows]), torch.tensor(list(rows.values())))
    tokens = torch.linspace(0, num_tokens - 1, len(chosen)).long()
    ids = torch.full_like(problem.token_selected_experts, NO_ROUTE)
    ids[tokens, torch.arange(len(chosen)) % ids.shape[1]] = chosen.int()
    problem = replace(problem, token_selected_experts=ids)
    shared_weights("unit" if "kind" not in options else "ordinary").touch(problem.active_experts)
    return problem


def sparse(num_tokens: int, routes: int, **options: Any) -> MoeInputs:
    """Few tiles, every row of them exact."""
    return thin_out(make_inputs(num_tokens, kind="integer", experts=POOL, seed=num_tokens, **options), routes)


def token_tiles(expected: Stages, rows: Sequence[int], plan: dict[str, Any]) -> dict[str, Tensor]:
    """The route stage's sections for a `crowded` problem, an expert a tile, every one finished by FC1."""
    tiles = torch.zeros(plan["workspace"]["tiles"][1] // 16, 4, dtype=torch.int32)
    first = expected.expert_offsets
    experts = torch.tensor(sorted(POOL[: len(rows)]))
    tiles[: len(rows)] = torch.stack(
        [experts, first[experts], first[experts + 1] - first[experts], torch.full_like(experts, FC1_PARTS)], dim=1
    ).to(torch.int32)
    return {"tiles": tiles, "tile_count": torch.tensor([len(rows)], dtype=torch.int32)}
