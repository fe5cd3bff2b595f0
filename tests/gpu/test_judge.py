"""The parts of the comparator give the same on the GPU as on the CPU, so that it may judge there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from gpu_support.exact_situ import exact_situ
from gpu_support.plans import DEVICE, has_kernels
from torch import Tensor

from cake_moe import reference
from cake_moe.layout import dequantize_nvfp4
from cake_moe.testing.accumulate import Sm90Sum, accumulation_of, sum_is_exact
from cake_moe.testing.compare import Mismatch, compare, situ_float32
from cake_moe.testing.inputs import make_input, make_inputs
from cake_moe.testing.rounding import bf16_bits, bf16_cell, fma_float32
from cake_moe.testing.routings import expert_pool
from cake_moe.testing.stages import run


def any_floats(count: int, seed: int) -> Tensor:
    """float32 of every exponent, infinities and NaN included."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-(2**31), 2**31, (count,), dtype=torch.int64, generator=generator).int().view(torch.float32)


def same(a: Tensor, b: Tensor) -> bool:
    """The same values, and NaN in the same places: a NaN's own bits are not judged."""
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(0.5), b.nan_to_num(0.5))


def test_situ_is_that_of_the_cpu() -> None:
    generator = torch.Generator().manual_seed(1)
    gate = torch.randn(64, 384, generator=generator) * 10.0 ** torch.randint(-6, 6, (64, 1), generator=generator)
    up = torch.randn(64, 384, generator=generator) * 10.0 ** torch.randint(-6, 6, (64, 1), generator=generator)
    gate[0], up[1] = any_floats(384, 2), any_floats(384, 3)
    a, b, l = (0.1 + torch.rand(64, generator=generator) * top for top in (1, 8, 50))  # noqa: E741
    wanted = torch.cat([situ_float32(gate[i : i + 1], up[i : i + 1], a[i], b[i], l[i]) for i in range(64)])
    got = exact_situ()(*(t.cuda() for t in (gate, up, a, b, l))).cpu()
    assert same(got, wanted)
    assert torch.equal(got.view(torch.int32)[2:], wanted.view(torch.int32)[2:])


@pytest.mark.parametrize("kind", ["normal", "wide", "subnormal", "inf", "nan_row"])
def test_quantisations(kind: str) -> None:
    x = make_input(kind, 50, seed=3)
    scale = torch.tensor([2688 / 11.3])
    for cpu, gpu in zip(
        reference.quantize_input(x, scale), reference.quantize_input(x.cuda(), scale.cuda()), strict=True
    ):
        assert torch.equal(cpu, gpu.cpu())
    v, encode = x.float()[:, :384] * 0.37, torch.rand(50) + 0.1
    for cpu, gpu in zip(reference.requantize(v, encode), reference.requantize(v.cuda(), encode.cuda()), strict=True):
        assert torch.equal(cpu, gpu.cpu())


@pytest.mark.parametrize(
    "function",
    [
        lambda x: bf16_bits(x).float(),
        lambda x: bf16_cell(x.bfloat16())[0],
        lambda x: bf16_cell(x.bfloat16())[1],
        lambda x: fma_float32(x, x.flip(0), x.roll(7)),
    ],
    ids=["bf16_bits", "lower", "upper", "fma"],
)
def test_roundings(function: Callable[[Tensor], Tensor]) -> None:
    x = any_floats(1 << 20, 4)
    x[:100000] = torch.randn(100000, generator=torch.Generator().manual_seed(5))
    assert same(function(x), function(x.cuda()).cpu())


def test_bounds_and_exactness() -> None:
    generator = torch.Generator().manual_seed(6)

    def values(rows: int) -> Tensor:
        packed = torch.randint(256, (rows, 192), dtype=torch.uint8, generator=generator)
        scales = torch.randint(0x7F, (rows, 24), dtype=torch.uint8, generator=generator)
        return dequantize_nvfp4(packed, scales, dtype=torch.float64)

    terms = values(2000) * values(2000)
    terms[:500] = (terms[:500] * 4).round() / 4
    exact = sum_is_exact(terms)
    assert 0 < int(exact.sum()) < len(exact)
    assert torch.equal(exact, sum_is_exact(terms.cuda()).cpu())
    torch.testing.assert_close(Sm90Sum().sharp(terms.cuda()).cpu(), Sm90Sum().sharp(terms), rtol=1e-12, atol=0)


@pytest.mark.skipif(not has_kernels(), reason="needs a GPU that fused_moe has kernels for")
@pytest.mark.parametrize("stage", ["quantize", "route", "fc1", "fc2", "finalize"])
def test_a_planted_fault_is_named(stage: str) -> None:
    problem = make_inputs(40, experts=expert_pool(32), seed=9).to(DEVICE)
    output, stages = run(problem)
    if stage == "quantize":
        stages.xq[39, 1791] ^= 1
    elif stage == "route":
        stages.route_row[39] = stages.route_row[39].roll(1)
    elif stage == "fc1":
        stages.hq[639, 191] ^= 1
    elif stage == "fc2":
        stages.y[639, 3583] *= 1 + 2.0**-7
    else:
        output[39, 3583] *= 1 + 2.0**-7
    with pytest.raises(Mismatch, match=f"^{stage}"):
        compare(problem, output, stages, accumulation_of(40, DEVICE), situ=exact_situ())
