"""Time of the host and of the GPU, as far as it shows a fault."""

from __future__ import annotations

import statistics
from itertools import pairwise

import pytest
import torch
from gpu_support.plans import DEVICE, has_kernels
from gpu_support.problems import problem_of

import cake_moe
from cake_moe.bench.host import empty_operator, measure_host
from cake_moe.testing.stages import call

pytestmark = pytest.mark.skipif(not has_kernels(), reason="needs a GPU that fused_moe has kernels for")

SUBMISSION_S = 15e-6


@pytest.mark.parametrize(("num_tokens", "calls"), [(1, 10_000), (64, 2_000), (128, 2_000)])
def test_submission(num_tokens: int, calls: int) -> None:
    """Median time until a call returns, above an operator of the same schema that does nothing; inference mode."""
    result = measure_host(problem_of(num_tokens), empty_operator(), calls, torch.cuda.synchronize)
    assert result.empty is not None
    above = result.operator - result.empty
    print(f"M={num_tokens}: {1e6 * result.operator:.1f} us, {1e6 * above:.1f} us above an empty operator")
    assert above <= SUBMISSION_S


def test_more_tokens_never_take_less_time() -> None:
    medians: dict[int, float] = {}
    for num_tokens in (256, 1024, 4096, 8192, 16384):
        problem = problem_of(num_tokens)
        workspace = torch.empty(cake_moe.workspace_size(num_tokens), dtype=torch.uint8, device=DEVICE)
        cake_moe.prepare_workspace(workspace, num_tokens)
        output = torch.empty_like(problem.input)
        events = [torch.cuda.Event(enable_timing=True) for _ in range(12)]
        for event in events:
            call(problem, workspace, output)
            event.record()
        torch.cuda.synchronize()
        medians[num_tokens] = statistics.median(a.elapsed_time(b) for a, b in pairwise(events))
    print({count: f"{1e3 * ms:.0f} us" for count, ms in medians.items()})
    assert all(after > 0.97 * before for before, after in pairwise(medians.values()))
