"""e2m1 and e4m3: every code, every tie and its neighbours, and the same answers as the native formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cake_moe import layout
from cake_moe._native import _C

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
# From the format: 4 exponent bits with bias 7, 3 mantissa bits, no infinity, all ones is NaN.
E4M3 = [m * 2.0**-9 if e == 0 else (8 + m) * 2.0 ** (e - 10) for e in range(16) for m in range(8)][:127]

FORMATS = [
    pytest.param(layout.encode_e2m1, E2M1, 8, id="e2m1"),
    pytest.param(layout.encode_e4m3, E4M3, 128, id="e4m3"),
]
Encode = Callable[[Tensor], Tensor]


def exact_code(x: float, values: list[float], sign_bit: int) -> int:
    """Nearest value by exact arithmetic, ties to the even code, saturating."""
    if math.isnan(x):
        return 7 if sign_bit == 8 else 127
    sign = sign_bit if math.copysign(1, x) < 0 else 0
    if math.isinf(x):
        return sign + len(values) - 1
    distance = [abs(Fraction(abs(x)) - Fraction(v)) for v in values]
    return sign + min(range(len(values)), key=lambda code: (distance[code], code % 2))


def test_every_e4m3_code_decodes() -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    values = layout.decode_e4m3(codes)
    assert values[:127].tolist() == E4M3
    assert values[128:255].tolist() == [-v for v in E4M3]
    assert math.copysign(1, values[128].item()) == -1
    assert values[[127, 255]].isnan().all()
    assert torch.equal(values.nan_to_num(9), codes.view(torch.float8_e4m3fn).float().nan_to_num(9))
    assert torch.equal(layout.decode_e4m3(codes.view(torch.float8_e4m3fn)).nan_to_num(9), values.nan_to_num(9))


def test_every_e4m3_code_encodes_to_itself() -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    expected = torch.where((codes & 127) == 127, torch.tensor(127, dtype=torch.uint8), codes)
    for dtype in (torch.float32, torch.float64):
        assert torch.equal(layout.encode_e4m3(layout.decode_e4m3(codes, dtype)), expected)


def test_every_e2m1_pair_round_trips() -> None:
    packed = torch.arange(256, dtype=torch.uint8)[:, None]
    codes = layout.unpack_nibbles(packed)
    assert torch.equal(layout.pack_nibbles(codes), packed)
    values = layout.decode_e2m1(codes)
    for byte in range(256):
        even, odd = byte & 15, byte >> 4
        expected = [math.copysign(E2M1[code & 7], -1 if code & 8 else 1) for code in (even, odd)]
        assert [math.copysign(1, v) for v in values[byte].tolist()] == [math.copysign(1, v) for v in expected]
        assert values[byte].tolist() == expected
    assert torch.equal(layout.encode_e2m1(values), codes)
    dequantised = layout.dequantize_nvfp4(packed.view(-1, 8), torch.full((32, 1), 0x38, dtype=torch.uint8))
    assert torch.equal(dequantised, values.view(32, 16))


@pytest.mark.parametrize(("encode", "values", "sign_bit"), FORMATS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_tie_and_its_neighbours(encode: Encode, values: list[float], sign_bit: int, dtype: torch.dtype) -> None:
    ties = torch.tensor([(a + b) / 2 for a, b in pairwise(values)], dtype=dtype)
    infinity = torch.tensor(torch.inf, dtype=dtype)
    points = torch.cat([ties, ties.nextafter(infinity), ties.nextafter(-infinity), torch.tensor(values, dtype=dtype)])
    points = torch.cat([points, -points])
    assert encode(points).tolist() == [exact_code(x, values, sign_bit) for x in points.tolist()]


@pytest.mark.parametrize(("encode", "values", "sign_bit"), FORMATS)
def test_saturation_zero_and_nan(encode: Encode, values: list[float], sign_bit: int) -> None:
    top = len(values) - 1
    largest, inf = torch.finfo(torch.float32).max, math.inf
    assert encode(torch.tensor([values[-1] * 1.001, 1e6, largest, inf])).tolist() == [top] * 4
    assert encode(torch.tensor([-values[-1] * 1.001, -largest, -inf])).tolist() == [top + sign_bit] * 3
    assert encode(torch.tensor([0.0, -0.0, 1e-45, -1e-45])).tolist() == [0, sign_bit, 0, sign_bit]
    nan = exact_code(math.nan, values, sign_bit)
    assert encode(torch.tensor([math.nan, -math.nan])).tolist() == [nan, nan]
    assert encode(torch.empty(0, 3)).shape == (0, 3)


@given(x=st.floats(width=32))
def test_any_float_gets_the_nearest_code(x: float) -> None:
    for parameters in FORMATS:
        encode, values, sign_bit = parameters.values
        assert encode(torch.tensor([x])).item() == exact_code(x, values, sign_bit)
        assert encode(torch.tensor([x], dtype=torch.float64)).item() == exact_code(x, values, sign_bit)


@given(x=st.floats(-500, 500))
def test_any_double_gets_the_nearest_code(x: float) -> None:
    for parameters in FORMATS:
        encode, values, sign_bit = parameters.values
        assert encode(torch.tensor([x], dtype=torch.float64)).item() == exact_code(x, values, sign_bit)


def test_native_codecs_agree() -> None:
    """Every float32 whose low 12 bits are zero, one or all ones: all exponents, both sides of every tie."""
    high = np.arange(0, 2**32, 2**12, dtype=np.uint64)
    x = np.concatenate([high, high + 1, high + 0xFFF]).astype(np.uint32).view(np.float32)
    for encode, native in (
        (layout.encode_e2m1, _C.numerics.encode_e2m1),
        (layout.encode_e4m3, _C.numerics.encode_e4m3),
    ):
        assert np.array_equal(encode(torch.from_numpy(x)).numpy(), native(x))
    codes = np.arange(256, dtype=np.uint8)
    e4m3 = layout.decode_e4m3(torch.from_numpy(codes)).numpy()
    assert np.array_equal(e4m3, _C.numerics.decode_e4m3(codes), equal_nan=True)
    assert np.array_equal(layout.decode_e2m1(torch.from_numpy(codes[:16])).numpy(), _C.numerics.decode_e2m1(codes[:16]))


def test_dequantize_multiplies_scale_and_factor() -> None:
    packed = torch.tensor([[0x21] * 8 + [0x97] * 8], dtype=torch.uint8)
    scales = torch.tensor([[2.0, 0.5]]).to(torch.float8_e4m3fn)
    expected = [1.0, 2.0] * 8 + [3.0, -0.25] * 8
    assert layout.dequantize_nvfp4(packed, scales).tolist() == [expected]
    assert layout.dequantize_nvfp4(packed, scales, 4.0, torch.float64).tolist() == [[4 * v for v in expected]]
    factor = torch.tensor([[0.5]])
    assert layout.dequantize_nvfp4(packed, scales.view(torch.uint8), factor).tolist() == [[v / 2 for v in expected]]


def test_dequantize_nan_scale_spoils_its_block_only() -> None:
    packed = torch.zeros(1, 16, dtype=torch.uint8)
    values = layout.dequantize_nvfp4(packed, torch.tensor([[layout.E4M3_NAN, 0x38]], dtype=torch.uint8))
    assert values[0, :16].isnan().all()
    assert (values[0, 16:] == 0).all()


@pytest.mark.parametrize(("packed", "scales"), [((3, 16), (3, 1)), ((3, 16), (2, 2)), ((16,), (1, 2)), ((), ())])
def test_dequantize_refuses_other_shapes(packed: tuple[int, ...], scales: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"dequantize_nvfp4: packed .* must belong together, got"):
        layout.dequantize_nvfp4(torch.zeros(packed, dtype=torch.uint8), torch.zeros(scales, dtype=torch.uint8))


@pytest.mark.parametrize(
    ("packed", "scales", "dtype", "error", "text"),
    [
        (torch.int8, torch.uint8, torch.float32, ValueError, "packed must be uint8, got int8"),
        (torch.uint8, torch.float32, torch.float32, ValueError, "scales must be uint8 or float8_e4m3fn, got float32"),
        (torch.uint8, torch.float8_e5m2, torch.float32, ValueError, "scales must be .*, got float8_e5m2"),
        (torch.uint8, torch.uint8, torch.bfloat16, ValueError, "dtype must be float32 or float64, got bfloat16"),
        (torch.uint8, torch.uint8, torch.int32, ValueError, "dtype must be float32 or float64, got int32"),
        (None, torch.uint8, torch.float32, TypeError, "packed must be a torch.Tensor, got NoneType"),
        (torch.uint8, None, torch.float32, TypeError, "scales must be a torch.Tensor, got NoneType"),
    ],
)
def test_dequantisation_refuses_other_types(
    packed: torch.dtype | None, scales: torch.dtype | None, dtype: torch.dtype, error: type[Exception], text: str
) -> None:
    operands: list[Any] = [
        None if given is None else torch.zeros(2, columns).to(given) for given, columns in ((packed, 8), (scales, 1))
    ]
    with pytest.raises(error, match=f"^dequantize_nvfp4: {text}$"):
        layout.dequantize_nvfp4(*operands, dtype=dtype)
