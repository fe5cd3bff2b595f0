"""The whole operator: every stage from its own dump and every row of the output, against float64 on the GPU.

The comparator has no tolerance (cake_moe/testing/compare.py). Workspace and output hold NaN bytes before each call.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from gpu_support.plans import DEVICE, has_kernels, plan_rows
from gpu_support.problems import check, pool_of, problem_of, tile_edge_ids

import cake_moe
from cake_moe.layout import EXPERTS, MAX_TOKENS, TOP_K
from cake_moe.testing.calls import bits
from cake_moe.testing.inputs import INPUT_KINDS
from cake_moe.testing.routings import ROUTING_NAMES
from cake_moe.testing.stages import run

pytestmark = pytest.mark.skipif(not has_kernels(), reason="needs a GPU that fused_moe has kernels for")

COUNTS = (
    *range(1, 18),
    *(count for center in (32, 64, 128, 256, 512, 1024, 2048) for count in (center - 1, center, center + 1)),
    *(100, 1500, 3000, 4096, 8191, 8192, MAX_TOKENS),
)
EDGES = sorted({count for row in plan_rows() for count in (row.first, row.last)})
ROW_OF = {count: row for row in plan_rows() for count in (row.first, row.last)}


@pytest.mark.parametrize("num_tokens", sorted(COUNTS))
@pytest.mark.parametrize("routing", ROUTING_NAMES)
def test_every_stage_and_row(routing: str, num_tokens: int) -> None:
    check(problem_of(num_tokens, routing), routing)


@pytest.mark.parametrize("num_tokens", EDGES)
def test_experts_whose_rows_end_near_a_tile(num_tokens: int) -> None:
    """Both ends of every row of the plan's table, with experts of tile - 2 .. tile + 2 rows and of several tiles."""
    ids = tile_edge_ids(num_tokens, ROW_OF[num_tokens].tile_tokens, pool_of("normal"))
    check(problem_of(num_tokens, ids=ids), "tile edges")


@pytest.mark.parametrize(
    ("kind", "num_tokens"),
    [
        *((kind, row.first) for kind in INPUT_KINDS if kind != "normal" for row in plan_rows()),
        *((kind, row.last) for kind in ("integer", "wide") for row in plan_rows()),
    ],
)
def test_kinds_of_input(kind: str, num_tokens: int) -> None:
    problem = problem_of(num_tokens, "uniform", kind)
    report = check(problem, kind)
    assert report.nan_rows == int(problem.input.isnan().any(dim=1).sum())
    assert (report.nan_rows > 0) == (kind == "nan_row")
    if kind == "integer":
        assert report.stages["fc1"].differing == 0  # every sum is exact


@pytest.mark.parametrize("num_tokens", [row.first for row in plan_rows()])
def test_saturated_activation(num_tokens: int) -> None:
    """a*g and a*u of about 1e4: tanh and sigmoid at their limits."""
    problem = problem_of(num_tokens, "skew")
    scales = list(problem.quant_scales)
    scales[2] = scales[2] * 1e4
    check(replace(problem, quant_scales=scales), "gate and up near 1e4")


@pytest.mark.parametrize("num_tokens", [row.last for row in plan_rows()])
def test_only_the_last_expert(num_tokens: int) -> None:
    """All rows in one expert, 895 without rows; at 16384 tokens its weights lie past 2^31 FP4 elements."""
    ids = torch.full((num_tokens, TOP_K), EXPERTS - 1, dtype=torch.int32)
    check(problem_of(num_tokens, ids=ids), "expert 895 only")


def test_one_row() -> None:
    ids = torch.full((1, TOP_K), -1, dtype=torch.int32)
    ids[0, 9] = 5
    check(problem_of(1, ids=ids), "one row")


@pytest.mark.parametrize("num_tokens", EDGES)
def test_no_row(num_tokens: int) -> None:
    """A batch of padding: no expert has work and the output is +0."""
    ids = torch.full((num_tokens, TOP_K), -1, dtype=torch.int32)
    problem = problem_of(num_tokens, ids=ids)
    output, _ = run(problem)
    assert bool((output.view(torch.int16) == 0).all())


@pytest.mark.parametrize("num_tokens", [5, 64, 65, 700])
def test_precedence_of_a_token(num_tokens: int) -> None:
    """An invalid id, then no route at all, then NaN in the input; other rows are untouched."""
    problem = problem_of(num_tokens, "out_of_range")
    problem = replace(problem, input=problem.input.clone())
    problem.input[::4, 100] = torch.nan
    output, _ = run(problem)
    ids = problem.token_selected_experts
    invalid = ((ids < -1) | (ids >= EXPERTS)).any(dim=1)
    empty = ~invalid & (ids == -1).all(dim=1)
    nan = invalid | (~empty & problem.input.isnan().any(dim=1))
    assert torch.equal(output.isnan().all(dim=1), nan)
    assert torch.equal(output.isnan().any(dim=1), nan)
    assert torch.equal((output.view(torch.int16) == 0).all(dim=1), empty)
    assert bool(invalid.any())


@pytest.mark.parametrize("num_tokens", [2, 64, 128])
def test_functional_call(num_tokens: int) -> None:
    problem = problem_of(num_tokens, "zipf")
    assert torch.equal(bits(torch.ops.cake.fused_moe_functional(**vars(problem))), bits(run(problem)[0]))


def test_no_tokens() -> None:
    problem = problem_of(1)
    rows = ("input", "token_selected_experts", "token_final_scales")
    empty = replace(problem, **{name: getattr(problem, name)[:0] for name in rows})
    assert cake_moe.fused_moe(**vars(empty)).shape == (0, 3584)


def test_warmup() -> None:
    cake_moe.warmup(DEVICE)
