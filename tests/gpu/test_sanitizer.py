"""What ci/gpu.sh runs under compute-sanitizer: every kernel instance once, with little work.

No result of another library's kernel is read, since only this library's kernels are watched: inputs come from the host
by copies, and results go there, of each section only what a call writes. Every tensor is an allocation of its own, so
an access past its end is seen.
CAKE_TEST_SHARD=i/n takes every n-th case only.
"""

from __future__ import annotations

import os

import pytest
from gpu_support.plans import DEVICE, first_of_each_instance, has_kernels, plan
from gpu_support.problems import tile_edge_ids
from torch import Tensor

from cake_moe.testing.accumulate import accumulation_of
from cake_moe.testing.compare import check_fc1, check_fc2, check_routes, compare
from cake_moe.testing.inputs import MoeInputs, make_inputs
from cake_moe.testing.routings import expert_pool
from cake_moe.testing.stages import Stages, run

pytestmark = pytest.mark.skipif(not has_kernels(), reason="needs a GPU that fused_moe has kernels for")

POOL = expert_pool(16)
WHOLE = 128  # up to so many tokens every stage is compared


def cases() -> list[int]:
    share, shares = map(int, os.environ.get("CAKE_TEST_SHARD", "0/1").split("/"))
    return first_of_each_instance()[share::shares]


def run_and_fetch(problem: MoeInputs) -> tuple[Tensor, Stages]:
    """A call on the GPU; output and stages on the CPU, where rows that do not exist are 0."""
    output, stages = run(problem.to(DEVICE))
    return output.cpu(), stages.fetch()


@pytest.mark.parametrize("num_tokens", cases())
def test_instance(num_tokens: int) -> None:
    """A few experts with rows around the tile; the other tokens have no route."""
    tile = max(launch["tile_tokens"] for launch in plan(num_tokens)["launches"] if launch["tile_rows"] > 0)
    ids = tile_edge_ids(num_tokens, tile, POOL, fill=False)
    problem = make_inputs(num_tokens, routing="one_group", experts=POOL, seed=2)
    problem.token_selected_experts.copy_(ids)
    output, stages = run_and_fetch(problem)
    accumulation = accumulation_of(num_tokens, DEVICE)
    if num_tokens <= WHOLE:
        compare(problem, output, stages, accumulation)
        return
    check_routes(problem, stages)
    check_fc1(problem, stages, accumulation)
    check_fc2(problem, stages, accumulation)
    assert not output.isnan().any()


@pytest.mark.parametrize("num_tokens", [1, 65])
def test_quick(num_tokens: int) -> None:
    problem = make_inputs(num_tokens, routing="out_of_range", experts=POOL, seed=3)
    compare(problem, *run_and_fetch(problem), accumulation_of(num_tokens, DEVICE))
