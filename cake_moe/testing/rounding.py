"""Roundings that PyTorch does not offer exactly, and rounding cells: which real numbers a code may stand for."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from cake_moe.layout import E4M3_NAN, decode_e2m1, decode_e4m3

BF16_NAN_BITS = 0x7FFF


def fma_float32(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Correctly rounded a * b + c of float32 tensors, IEEE special values included.

    The product is exact in float64 (48 bits). Its sum with c is rounded to odd there, so that the second rounding,
    to float32, cannot meet a false tie (Boldo and Melquiond, 2005).
    """
    product = a.double() * b.double()
    addend = c.double()
    total = product + addend
    rest = total - product
    error = (product - (total - rest)) + (addend - rest)
    bits = total.view(torch.int64)
    inexact = (error != 0) & error.isfinite() & total.isfinite()
    toward_zero = torch.where((error > 0) == (total > 0), bits, bits - 1)
    return torch.where(inexact, toward_zero | 1, bits).view(torch.float64).float()


def bf16_bits(x: Tensor) -> Tensor:
    """int16 bits of float32 values rounded to bfloat16 (nearest even); every NaN is 0x7FFF."""
    bits = x.bfloat16().view(torch.int16)
    return torch.where(x.isnan(), BF16_NAN_BITS, bits).to(torch.int16)


def bf16_cell(x: Tensor) -> tuple[Tensor, Tensor]:
    """Lower and upper end (float64) of the real numbers that round to each bfloat16 value, ends included.

    -0 and +0 divide their cell at zero. NaN gives NaN ends.
    """
    bits = x.view(torch.int16).long() & 0xFFFF
    magnitude = bits & 0x7FFF

    def value(code: Tensor) -> Tensor:
        # One step past the largest finite value stands for infinity, whose cell begins half a step below it.
        finite = (code.clamp(0, 0x7F7F) << 16).int().view(torch.float32).double()
        return torch.where(code > 0x7F7F, 2.0**128, finite)

    inner = torch.where(magnitude == 0, 0.0, (value(magnitude - 1) + value(magnitude)) / 2)
    outer = torch.where(magnitude >= 0x7F80, torch.inf, (value(magnitude) + value(magnitude + 1)) / 2)
    nan = magnitude > 0x7F80
    inner, outer = inner.masked_fill(nan, torch.nan), outer.masked_fill(nan, torch.nan)
    negative = bits > 0x7FFF
    return torch.where(negative, -outer, inner), torch.where(negative, -inner, outer)


def _magnitude_cells(values: Tensor) -> tuple[Tensor, Tensor]:
    """Cells of ascending magnitudes that saturate."""
    middle = (values[1:] + values[:-1]) / 2
    return torch.cat([values.new_zeros(1), middle]), torch.cat([middle, values.new_full((1,), torch.inf)])


@cache
def e2m1_cells() -> tuple[Tensor, Tensor]:
    """Lower and upper end (float64 [16]) of the real numbers that round to each e2m1 code."""
    lower, upper = _magnitude_cells(decode_e2m1(torch.arange(8), torch.float64))
    return torch.cat([lower, -upper]), torch.cat([upper, -lower])


@cache
def e4m3_cells() -> tuple[Tensor, Tensor]:
    """Lower and upper end (float64 [256]) of the real numbers that round to each e4m3 code; NaN for the NaN codes."""
    lower, upper = _magnitude_cells(decode_e4m3(torch.arange(E4M3_NAN, dtype=torch.uint8), torch.float64))
    nan = lower.new_full((1,), torch.nan)
    return torch.cat([lower, nan, -upper, nan]), torch.cat([upper, nan, -lower, nan])
