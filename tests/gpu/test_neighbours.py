"""Beside work that keeps SMs from the operator: no hang, the same bits."""

from __future__ import annotations

import pytest
import torch
from gpu_support.neighbour import occupied
from gpu_support.plans import DEVICE, has_kernels, plan_rows, target
from gpu_support.problems import problem_of
from gpu_support.waiting import require_finished, within

import cake_moe
from cake_moe.testing.calls import bits
from cake_moe.testing.stages import call, run

pytestmark = pytest.mark.skipif(not has_kernels(), reason="needs a GPU that fused_moe has kernels for")

COUNTS = sorted({1, 4, 16, 64, 65, *(row.last for row in plan_rows())})
BESIDE_S = 0.3  # a launch that needs all SMs at once waits for the neighbour, and may
AFTER_S = 20.0


@pytest.mark.parametrize("num_tokens", COUNTS)
@pytest.mark.parametrize("left", ["half", "eight"])
def test_few_sms_are_left(left: str, num_tokens: int) -> None:
    """Fewer than the plan counts on, as in a partition of the GPU."""
    sms = target()[1]
    problem = problem_of(num_tokens)
    expected, _ = run(problem)
    workspace = torch.empty(cake_moe.workspace_size(num_tokens), dtype=torch.uint8, device=DEVICE)
    cake_moe.prepare_workspace(workspace, num_tokens)
    output = torch.full_like(expected, torch.nan)
    stream, done = torch.cuda.Stream(), torch.cuda.Event()
    with occupied(sms // 2 if left == "half" else sms - 8):
        with torch.cuda.stream(stream):
            for _ in range(3):
                call(problem, workspace, output)
            done.record()
        beside = within(BESIDE_S, done.query)
    require_finished(done, AFTER_S, f"fused_moe with {num_tokens} tokens with {left} of the SMs left")
    print(f"M={num_tokens}: ended {'beside' if beside else 'after'} the neighbour")
    assert torch.equal(bits(output), bits(expected))


@pytest.mark.parametrize("num_tokens", [1, 64, 65, 1024])
def test_neighbours_come_and_go(num_tokens: int) -> None:
    problem = problem_of(num_tokens)
    expected, _ = run(problem)
    workspace = torch.empty(cake_moe.workspace_size(num_tokens), dtype=torch.uint8, device=DEVICE)
    cake_moe.prepare_workspace(workspace, num_tokens)
    outputs = torch.full((40, *expected.shape), torch.nan, dtype=torch.bfloat16, device=DEVICE)
    stream, done = torch.cuda.Stream(), torch.cuda.Event()
    torch.cuda.synchronize()
    for batch in outputs.view(4, 10, *expected.shape):
        with torch.cuda.stream(stream):
            for output in batch[:5]:
                call(problem, workspace, output)
        with occupied(target()[1] - 1), torch.cuda.stream(stream):
            for output in batch[5:]:
                call(problem, workspace, output)
    done.record(stream)
    require_finished(done, AFTER_S, f"fused_moe with {num_tokens} tokens among neighbours")
    assert int((bits(outputs) != bits(expected)).sum()) == 0
