"""quantize_nvfp4 against the reference, and back through dequantize_nvfp4."""

from __future__ import annotations

import pytest
import torch

import cake_moe
from cake_moe import reference


@pytest.mark.parametrize("shape", [(16,), (1, 32), (3, 0, 48), (5, 7, 3584), (0, 16), (2, 3, 4, 16)])
@pytest.mark.parametrize("encode", [1.0, 0.3, 448.0])
def test_equals_the_reference_for_every_rank(shape: tuple[int, ...], encode: float) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).mul(3).bfloat16()
    packed, scales = cake_moe.quantize_nvfp4(x, torch.tensor([encode]))
    assert packed.shape == (*shape[:-1], shape[-1] // 2)
    assert scales.shape == (*shape[:-1], shape[-1] // 16)
    assert (packed.dtype, scales.dtype) == (torch.uint8, torch.float8_e4m3fn)
    expected_packed, expected_scales = reference.quantize_input(x.reshape(-1, shape[-1]), torch.tensor([encode]))
    assert torch.equal(packed.view(-1), expected_packed.view(-1))
    assert torch.equal(scales.view(torch.uint8).view(-1), expected_scales.view(torch.uint8).view(-1))


def test_values_on_the_grid_come_back() -> None:
    grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    block = torch.cat([grid, -grid])
    x = torch.stack([block * 2.0**e for e in range(-4, 5)]).bfloat16()
    packed, scales = cake_moe.quantize_nvfp4(x, torch.tensor([1.0]))
    assert torch.equal(cake_moe.dequantize_nvfp4(packed, scales), x.float())


def test_a_nan_takes_its_block_along_and_no_other() -> None:
    x = torch.ones(2, 48, dtype=torch.bfloat16)
    x[1, 20] = torch.nan
    values = cake_moe.dequantize_nvfp4(*cake_moe.quantize_nvfp4(x, torch.tensor([1.0])))
    assert values[1, 16:32].isnan().all()
    values[1, 16:32] = 1
    assert not values.isnan().any()
