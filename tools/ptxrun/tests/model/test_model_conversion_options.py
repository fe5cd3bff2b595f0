"""Conversions and approximations without a counterpart among the toolkit's host functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ptxrun.build import core

model = core().model


@pytest.mark.parametrize(
    ("to", "source", "expected"),
    [("s32", "f32", 0), ("u16", "f32", 0), ("s64", "f32", 1 << 63), ("u64", "f32", 1 << 63), ("s32", "f64", 1 << 31)],
)
def test_nan_to_integer(to: str, source: str, expected: int) -> None:
    nan = {"f32": 0x7FC00000, "f64": 0x7FF8 << 48}[source]
    assert int(model.float_to_integer(to, source, np.array([nan], np.uint64), "rz")[0]) == expected


def test_round_half_away() -> None:
    bits = np.array([0.5, 1.5, 2.5, -0.5, -2.5, 2.4999998], np.float32).view(np.uint32).astype(np.uint64)
    rounded = model.round_to_integral("f32", bits, "rna").astype(np.uint32).view(np.float32)
    assert rounded.tolist() == [1.0, 2.0, 3.0, -1.0, -3.0, 2.0]


def test_pairs_put_the_first_source_into_the_upper_half() -> None:
    one, two = 0x3F800000, 0x40000000
    assert model.convert_pair("e2m1", "f32", one, two) == 0x24
    assert model.convert_pair("e4m3", "f32", one, two) == 0x3840
    assert model.convert_pair("f16", "f32", one, two) == 0x3C004000
    assert model.convert_pair("e2m3", "f32", one, two) == 0x0810
    assert model.convert_packed("f16", "e4m3", 0x3840) == 0x3C004000
    assert model.convert_packed("f16", "e2m1", 0x24) == 0x3C004000
    assert model.convert_packed("bf16", "f16", 0x3C004000) == 0x3F804000


def test_relu_ftz_and_sat() -> None:
    def convert(to: str, values: list[int], **options: bool) -> list[int]:
        return model.convert(to, "f32", np.array(values, np.uint64), "rn", **options).tolist()

    negative, subnormal, nan, two, half = 0xBF800000, 0x80000001, 0xFFC00000, 0x40000000, 0x3F000000
    assert convert("bf16", [negative, nan, two], relu=True) == [0, 0x7FFF, 0x4000]
    assert convert("e4m3", [negative, nan, two], relu=True, satfinite=True) == [0, 0x7F, 0x40]
    assert convert("f32", [subnormal, two], ftz=True) == [0x80000000, two]
    assert convert("f32", [negative, nan, two, half, subnormal], sat=True) == [0, 0, 0x3F800000, half, 0]


@pytest.mark.parametrize(
    ("to", "source", "bits", "saturate", "expected"),
    [
        ("u8", "s32", 0xFFFFFFFF, True, 0),
        ("u8", "s32", 300, True, 255),
        ("u8", "s32", 300, False, 44),
        ("s16", "u32", 40000, True, 32767),
        ("s64", "s32", 0x80000000, False, 0xFFFFFFFF80000000),
        ("s8", "s64", (1 << 64) - 200, True, 0x80),
        ("u64", "u32", 0xFFFFFFFF, False, 0xFFFFFFFF),
    ],
)
def test_integer_to_integer(to: str, source: str, bits: int, saturate: bool, expected: int) -> None:
    assert model.integer_to_integer(to, source, bits, saturate) == expected


APPROXIMATIONS: dict[str, Callable[[Any], Any]] = {
    "ex2": np.exp2, "rcp": np.reciprocal, "sqrt": np.sqrt, "lg2": np.log2, "sin": np.sin, "cos": np.cos,
    "tanh": np.tanh, "rsqrt": lambda x: 1 / np.sqrt(x),
}  # fmt: skip


@pytest.mark.parametrize("function", sorted(APPROXIMATIONS))
def test_approximations_are_rounded_exact_values(function: str) -> None:
    x = np.concatenate([np.linspace(-8, 8, 4097), np.geomspace(1e-30, 1e30, 4096)]).astype(np.float32)
    with np.errstate(all="ignore"):
        expected = APPROXIMATIONS[function](x.astype(np.longdouble)).astype(np.float32)
    got = model.approximate(function, "f32", x.view(np.uint32).astype(np.uint64), False)
    got = got.astype(np.uint32).view(np.float32)
    np.testing.assert_array_equal(got, expected)


def test_special_values_of_approximations() -> None:
    def call(function: str, bits: int, ftz: bool = False, name: str = "f32") -> int:
        return int(model.approximate(function, name, np.array([bits], np.uint64), ftz)[0])

    inf, minus_inf, nan = 0x7F800000, 0xFF800000, 0x7FFFFFFF
    assert call("rcp", 0x80000000) == minus_inf
    assert call("rcp", inf) == 0
    assert call("rcp", 0x00000001, ftz=True) == inf
    assert call("rcp", 0x7F7FFFFF, ftz=True) == 0  # a subnormal result
    assert call("rsqrt", 0x80000000) == minus_inf
    assert call("sqrt", 0x80000000) == 0x80000000
    assert call("sqrt", 0xBF800000) == nan
    assert call("lg2", 0x80000000) == minus_inf
    assert call("ex2", minus_inf) == 0
    assert call("ex2", inf) == inf
    assert call("sin", inf) == nan
    assert call("tanh", minus_inf) == 0xBF800000
    assert call("tanh", 0x7C00, name="f16") == 0x3C00
    assert call("ex2", 0x3F80, name="bf16") == 0x4000


def test_divisions_differ_beyond_large_divisors() -> None:
    one, huge, inf = 0x3F800000, 0x7E800001, 0x7F800000
    assert model.divide_approx(one, huge, False) == 0
    assert model.divide_approx(inf, huge, False) == 0x7FFFFFFF
    assert model.divide_full(one, huge, False) == int(np.float32(1 / 2.0**126 / (1 + 2.0**-23)).view(np.uint32))
    assert model.divide_approx(0x40C00000, 0xC0000000, True) == 0xC0400000
