"""The quantise kernel gives the CPU's bits."""

from __future__ import annotations

import pytest
import torch

import cake_moe

GROUP = 16
BLOCKS = 10_000_000
COLS = 3584
ENCODE_SCALES = (1.0, 0.37, 1 / 3, 2688.0, 2.0**-10, 448 * 6 / 11.25, 3.1e4)


def _random_bits(generator: torch.Generator, blocks: int) -> torch.Tensor:
    """Every bf16 pattern with equal probability: normal, subnormal, zero, infinite and NaN values in any mixture."""
    bits = torch.randint(-32768, 32768, (blocks, GROUP), dtype=torch.int16, generator=generator)
    return bits.view(torch.bfloat16)


def _special(generator: torch.Generator, blocks: int) -> torch.Tensor:
    """Ordinary values, with subnormals, signed zeros, infinities, NaN and e2m1 rounding ties mixed in by block."""
    x = torch.randn(blocks, GROUP, generator=generator).bfloat16()
    kind = torch.randint(0, 6, (blocks, 1), generator=generator)
    lane = torch.randint(0, GROUP, (blocks, 1), generator=generator)
    here = torch.arange(GROUP) == lane
    sign = torch.where(x < 0, -1.0, 1.0)
    subnormal = (torch.randint(0, 128, x.shape, generator=generator, dtype=torch.int16)).view(torch.bfloat16)
    ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0])
    tied = sign * ties[torch.randint(0, 8, x.shape, generator=generator)]
    x = torch.where(kind == 1, (sign * subnormal.float()).bfloat16(), x)
    x = torch.where(kind == 2, (sign * 0.0).bfloat16(), x)
    x = torch.where((kind == 3) & here, torch.tensor(float("inf"), dtype=torch.bfloat16) * sign.bfloat16(), x)
    x = torch.where((kind == 4) & here, torch.tensor(float("nan"), dtype=torch.bfloat16), x)
    return torch.where(kind == 5, tied.bfloat16(), x)


def _assert_same(x: torch.Tensor, encode: float) -> None:
    scale = torch.tensor([encode], dtype=torch.float32)
    packed, scales = torch.ops.cake.quantize_nvfp4(x, scale)
    gpu_packed, gpu_scales = torch.ops.cake.quantize_nvfp4(x.cuda(), scale.cuda())
    assert torch.equal(gpu_packed.cpu(), packed)
    assert torch.equal(gpu_scales.cpu(), scales)


@pytest.mark.parametrize("encode", ENCODE_SCALES)
@pytest.mark.parametrize("draw", [_random_bits, _special])
def test_ten_million_blocks_match_the_cpu(draw, encode: float) -> None:
    generator = torch.Generator().manual_seed(int(encode * 1000) % 2**31)
    _assert_same(draw(generator, BLOCKS // len(ENCODE_SCALES)), encode)


def test_ten_million_blocks_at_one_scale() -> None:
    generator = torch.Generator().manual_seed(7)
    _assert_same(_random_bits(generator, BLOCKS), 1.0)


@pytest.mark.parametrize("rows", [1, 2, 7, 64, 1000])
def test_operator_shapes(rows: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    x = _random_bits(generator, rows * COLS // GROUP).view(rows, COLS)
    _assert_same(x, 1.0)


def test_poisoned_neighbours_are_untouched() -> None:
    """Rows at the end of an allocation: nothing outside the results is written."""
    x = torch.randn(3, COLS).bfloat16().cuda()
    guard = torch.full((1 << 20,), 0xA5, dtype=torch.uint8).cuda()
    packed, scales = cake_moe.quantize_nvfp4(x, torch.ones(1).cuda())
    torch.cuda.synchronize()
    assert bool((guard.cpu() == 0xA5).all())
    assert packed.shape == (3, COLS // 2)
    assert scales.shape == (3, COLS // GROUP)
    assert scales.dtype == torch.float8_e4m3fn


def test_no_blocks() -> None:
    packed, scales = cake_moe.quantize_nvfp4(
        torch.empty(0, COLS, dtype=torch.bfloat16, device="cuda"), torch.ones(1).cuda()
    )
    assert packed.shape == (0, COLS // 2)
    assert scales.shape == (0, COLS // GROUP)
