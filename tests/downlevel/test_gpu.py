"""The sm_100a plan's kernels, rewritten for sm_90a, on a GPU: real copies, barriers, clusters and dependent launches."""

from __future__ import annotations

import pytest
from downlevel_call import GpuCall
from ptx_cases import judge, same_bits, sparse

from cake_moe.testing.inputs import make_inputs
from cake_moe.testing.routings import expert_pool

POOL = expert_pool(64)
FIRST_OF_EACH_PATH = [1, 65, 225, 545, 1217, 2753, 4353, 5985, 9281, 12417]
ROUTES = 40


@pytest.mark.parametrize("num_tokens", [1, 8, 64, 1024])
def test_bits_of_the_cpu_backend(num_tokens: int) -> None:
    """Sums are exact."""
    problem = make_inputs(num_tokens, kind="integer", experts=POOL, seed=num_tokens)
    call = GpuCall(problem)
    call.run()
    same_bits(problem, *call.result())
    judge(problem, call)


@pytest.mark.parametrize("num_tokens", [1, 8, 64, 1024])
def test_sums_that_round(num_tokens: int) -> None:
    problem = make_inputs(num_tokens, routing="zipf", experts=POOL, seed=num_tokens)
    call = GpuCall(problem)
    call.run()
    judge(problem, call)


@pytest.mark.parametrize("num_tokens", FIRST_OF_EACH_PATH)
def test_every_path_of_the_plan(num_tokens: int) -> None:
    problem = sparse(num_tokens, ROUTES)
    call = GpuCall(problem)
    call.run()
    same_bits(problem, *call.result())
    judge(problem, call)


@pytest.mark.parametrize("num_tokens", [1, 9, 65, 1024])
def test_watched(num_tokens: int) -> None:
    """What ci/gpu.sh runs under compute-sanitizer: little work."""
    problem = sparse(num_tokens, 8)
    call = GpuCall(problem)
    call.run()
    same_bits(problem, *call.result())
