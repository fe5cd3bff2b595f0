"""The sm_100a plan's kernels, rewritten for sm_90a, on a GPU: real copies, barriers, clusters, dependent launches."""

from __future__ import annotations

import pytest
import torch
from downlevel_call import ARCH, GpuCall, quantize
from ptx_cases import judge, same_bits, sparse
from ptx_program import SM_COUNT

from cake_moe._native import _C
from cake_moe.layout import HIDDEN, MAX_TOKENS
from cake_moe.testing.inputs import make_inputs
from cake_moe.testing.routings import expert_pool

POOL = expert_pool(64)
ROUTES = 40


def first_of_each_path() -> list[int]:
    """The smallest count of every path of the plan."""
    counts: dict[str, int] = {}
    for num_tokens in range(1, MAX_TOKENS + 1):
        counts.setdefault(_C.make_plan(num_tokens, f"sm_{ARCH}", SM_COUNT)["path"], num_tokens)
    return list(counts.values())


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


@pytest.mark.parametrize("num_tokens", first_of_each_path())
def test_every_path_of_the_plan(num_tokens: int) -> None:
    problem = sparse(num_tokens, ROUTES)
    call = GpuCall(problem)
    call.run()
    same_bits(problem, *call.result())
    judge(problem, call)


@pytest.mark.parametrize("encode", [2.0**-10, 1.0, 448.0])
def test_quantise(encode: float) -> None:
    """Random bf16 patterns, NaN and infinities among them."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(-(2**15), 2**15, (640, HIDDEN), generator=generator).to(torch.int16).view(torch.bfloat16)
    scale = torch.tensor([encode])
    packed, scales = quantize(x, scale)
    expected_packed, expected_scales = torch.ops.cake.quantize_nvfp4(x, scale)
    assert torch.equal(packed, expected_packed)
    assert torch.equal(scales, expected_scales)


@pytest.mark.parametrize("num_tokens", [1, 9, 65, 1024])
def test_watched(num_tokens: int) -> None:
    """What ci/gpu.sh runs under compute-sanitizer: little work."""
    problem = sparse(num_tokens, 8)
    call = GpuCall(problem)
    call.run()
    same_bits(problem, *call.result())
