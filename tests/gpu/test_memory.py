"""What a call touches, allocates and needs."""

from __future__ import annotations

import pytest
import torch
from gpu_support.plans import DEVICE, has_kernels, plan, plan_rows
from gpu_support.problems import problem_of
from torch import Tensor

import cake_moe
from cake_moe.layout import MAX_TOKENS
from cake_moe.testing.calls import bits, check_guards
from cake_moe.testing.inputs import MoeInputs
from cake_moe.testing.stages import call, run, stage_views

pytestmark = pytest.mark.skipif(not has_kernels(), reason="needs a GPU that fused_moe has kernels for")

STATISTICS = ("allocation.all.allocated", "segment.all.allocated", "reserved_bytes.all.allocated", "num_alloc_retries")


@pytest.mark.parametrize("num_tokens", [1, 3, 64, 65, 300, 5000])
def test_memory_around_a_call_is_untouched(num_tokens: int) -> None:
    check_guards(problem_of(num_tokens))


@pytest.mark.parametrize("num_tokens", sorted({1, 64, 65, *(row.last for row in plan_rows())}))
def test_a_call_allocates_nothing_and_writes_to_its_output(num_tokens: int) -> None:
    problem = problem_of(num_tokens)
    expected, _ = run(problem)
    workspace = torch.empty(cake_moe.workspace_size(num_tokens), dtype=torch.uint8, device=DEVICE)
    cake_moe.prepare_workspace(workspace, num_tokens)
    output = torch.full_like(problem.input, torch.nan)
    torch.cuda.synchronize()
    before, free = torch.cuda.memory_stats(), torch.cuda.mem_get_info()
    for _ in range(5):
        returned = cake_moe.fused_moe(**vars(problem), workspace=workspace, output=output)
    torch.cuda.synchronize()
    after = torch.cuda.memory_stats()
    assert {name: after[name] for name in STATISTICS} == {name: before[name] for name in STATISTICS}
    assert torch.cuda.mem_get_info() == free
    assert returned is output
    assert torch.equal(bits(output), bits(expected))


def test_preparation_allocates_nothing() -> None:
    workspace = torch.empty(cake_moe.workspace_size(64), dtype=torch.uint8, device=DEVICE)
    cake_moe.warmup(DEVICE)
    torch.cuda.synchronize()
    before, free = torch.cuda.memory_stats(), torch.cuda.mem_get_info()
    cake_moe.prepare_workspace(workspace, 64, up_to=True)
    after = torch.cuda.memory_stats()
    assert {name: after[name] for name in STATISTICS} == {name: before[name] for name in STATISTICS}
    assert torch.cuda.mem_get_info() == free
    stages = stage_views(workspace, 64)
    assert bool((stages.beta == 4).all())
    assert bool((stages.linear_beta == 25).all())


@pytest.mark.parametrize(("num_tokens", "goal"), [(1, 0.25e6), (64, 10e6), (MAX_TOKENS, 2.10e9)])
def test_workspace_goals(num_tokens: int, goal: float) -> None:
    """The largest keeps the dequantised activations."""
    assert plan(num_tokens)["workspace_total"] <= cake_moe.workspace_size(num_tokens) <= goal


def is_prepared(problem: MoeInputs, workspace: Tensor) -> bool:
    output = torch.full_like(problem.input, 7)
    try:
        cake_moe.fused_moe(**vars(problem), workspace=workspace, output=output)
    except ValueError as error:
        assert "must be prepared for" in str(error)  # noqa: PT017
        assert bool((output == 7).all())
        return False
    return True


def test_prepared_state_ends_with_the_storage() -> None:
    problem = problem_of(5)
    first = torch.empty(cake_moe.workspace_size(5), dtype=torch.uint8, device=DEVICE)
    address = first.data_ptr()
    cake_moe.prepare_workspace(first, 5)
    assert is_prepared(problem, first)
    del first
    second = torch.empty(cake_moe.workspace_size(5), dtype=torch.uint8, device=DEVICE)
    assert second.data_ptr() == address, "the allocator gave other memory: nothing was tested"
    assert not is_prepared(problem, second)


def test_one_buffer_serves_many_counts() -> None:
    counts = [row.first for row in plan_rows()]
    workspace = torch.empty(cake_moe.workspace_size(MAX_TOKENS), dtype=torch.uint8, device=DEVICE)
    cake_moe.prepare_workspace(workspace, MAX_TOKENS, up_to=True)
    for num_tokens in (*counts, *reversed(counts)):
        problem = problem_of(num_tokens, "zipf")
        output = torch.full_like(problem.input, torch.nan)
        call(problem, workspace, output)
        assert torch.equal(bits(output), bits(run(problem)[0]))
