"""Conversions against the toolkit's host conversions: every 16-bit input, boundary and random inputs beyond."""

from __future__ import annotations

import numpy as np
import pytest
from host_reference import Words, all_words, float_words, host, integer_words
from ptxrun.build import core

model = core().model
pytestmark = pytest.mark.toolkit

ROUNDINGS = ["rn", "rz", "rm", "rp"]
CANONICAL_NAN = {"f32": 0x7FFFFFFF, "f16": 0x7FFF, "bf16": 0x7FFF, "e4m3": 0x7F, "e5m2": 0x7F}
FRACTION_BITS = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7, "e4m3": 3, "e5m2": 2}
WIDTH = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8, "e2m3": 6, "e3m2": 6, "e2m1": 4}


def inputs(name: str) -> Words:
    return float_words(WIDTH[name]) if name in ("f32", "f64") else all_words(WIDTH[name])


def is_nan(name: str, bits: Words) -> np.ndarray:
    magnitude = bits & np.uint64((1 << (WIDTH[name] - 1)) - 1)
    if name == "e4m3":
        return magnitude == 0x7F
    exponent_bits = WIDTH[name] - 1 - FRACTION_BITS[name]
    return magnitude > np.uint64(((1 << exponent_bits) - 1) << FRACTION_BITS[name])


def assert_same(got: Words, expected: Words, bits: Words) -> None:
    wrong = np.flatnonzero(got != expected)
    assert wrong.size == 0, [f"{bits[i]:#x}: {got[i]:#x}, expected {expected[i]:#x}" for i in wrong[:5]]


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("to", ["f16", "bf16"])
def test_f32_to_16_bits(to: str, rounding: str) -> None:
    bits = inputs("f32")
    assert_same(model.convert(to, "f32", bits, rounding), host(f"{to} f32 {rounding}", bits), bits)


@pytest.mark.parametrize("to", ["f16", "bf16", "f32"])
def test_f64_narrows_to_nearest(to: str) -> None:
    bits = inputs("f64")
    bits = bits[~is_nan("f64", bits)]
    assert_same(model.convert(to, "f64", bits), host(f"{to} f64 rn", bits), bits)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_f64_to_f32(rounding: str) -> None:
    bits = inputs("f64")
    assert_same(model.convert("f32", "f64", bits, rounding), host(f"f32 f64 {rounding}", bits), bits)


def test_f32_to_f64() -> None:
    bits = inputs("f32")
    assert_same(model.convert("f64", "f32", bits), host("f64 f32 rn", bits), bits)


@pytest.mark.parametrize("source", ["f16", "bf16"])
def test_16_bits_to_f32(source: str) -> None:
    bits = all_words(16)
    expected = host(f"f32 {source} rn", bits)
    expected = np.where(is_nan("f32", expected), np.uint64(CANONICAL_NAN["f32"]), expected)
    assert_same(model.convert("f32", source, bits), expected, bits)


@pytest.mark.parametrize("saturation", ["satfinite", "nosat"])
@pytest.mark.parametrize("source", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("to", ["e4m3", "e5m2"])
def test_fp8(to: str, source: str, saturation: str) -> None:
    bits = inputs(source)
    got = model.convert(to, source, bits, "rn", saturation == "satfinite")
    expected = host(f"{to} {source} {saturation}", bits)
    # The host keeps sign and payload of a NaN; the instruction gives the canonical one.
    expected = np.where(is_nan(to, expected), np.uint64(CANONICAL_NAN[to]), expected)
    assert_same(got, expected, bits)


@pytest.mark.parametrize("source", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("to", ["e2m3", "e3m2", "e2m1"])
def test_fp6_and_fp4(to: str, source: str) -> None:
    bits = inputs(source)
    assert_same(model.convert(to, source, bits, "rn", True), host(f"{to} {source} satfinite", bits), bits)


def test_fp4_toward_zero() -> None:
    bits = inputs("f32")
    assert_same(model.convert("e2m1", "f32", bits, "rz", True), host("e2m1 f32 satfinite rz", bits), bits)


@pytest.mark.parametrize("source", ["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"])
def test_narrow_to_f16(source: str) -> None:
    bits = all_words(WIDTH[source])
    expected = host(f"f16 {source}", bits)
    expected = np.where(is_nan("f16", expected), np.uint64(CANONICAL_NAN["f16"]), expected)
    assert_same(model.convert("f16", source, bits), expected, bits)


@pytest.mark.parametrize("saturation", ["satfinite", "nosat"])
@pytest.mark.parametrize("rounding", ["rz", "rp"])
def test_f32_to_ue8m0(rounding: str, saturation: str) -> None:
    bits = inputs("f32")
    got = model.ue8m0_from("f32", bits, rounding, saturation == "satfinite")
    assert_same(got, host(f"ue8m0 f32 {rounding} {saturation}", bits), bits)


@pytest.mark.parametrize("rounding", ["rz", "rp"])
def test_bf16_to_ue8m0(rounding: str) -> None:
    bits = all_words(16)
    assert_same(model.ue8m0_from("bf16", bits, rounding, True), host(f"ue8m0 bf16 {rounding} satfinite", bits), bits)


def test_ue8m0_to_bf16() -> None:
    bits = all_words(8)
    assert_same(model.bf16_from_ue8m0(bits), host("bf16 ue8m0", bits), bits)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("source", ["s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("to", ["f16", "f32"])
def test_integer_to_float(to: str, source: str, rounding: str) -> None:
    bits = integer_words(int(source[1:]))
    assert_same(model.integer_to_float(to, source, bits, rounding), host(f"{to} {source} {rounding}", bits), bits)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("source", ["s64", "u64"])
def test_64_bits_to_f64(source: str, rounding: str) -> None:
    bits = integer_words(64)
    assert_same(model.integer_to_float("f64", source, bits, rounding), host(f"f64 {source} {rounding}", bits), bits)


@pytest.mark.parametrize("source", ["s32", "u64"])
def test_integer_to_bf16(source: str) -> None:
    bits = integer_words(int(source[1:]))
    assert_same(model.integer_to_float("bf16", source, bits, "rn"), host(f"bf16 {source} rn", bits), bits)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("source", ["f32", "f64"])
@pytest.mark.parametrize("to", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
def test_float_to_integer(to: str, source: str, rounding: str) -> None:
    bits = inputs(source)
    bits = bits[~is_nan(source, bits)]
    got = model.float_to_integer(to, source, bits, rounding)
    assert_same(got, host(f"{to} {source} {rounding}", bits), bits)


@pytest.mark.parametrize(("to", "source"), [("s32", "f16"), ("u64", "f16"), ("s32", "bf16"), ("u64", "bf16")])
def test_16_bit_float_to_integer(to: str, source: str) -> None:
    bits = all_words(16)
    bits = bits[~is_nan(source, bits)]
    assert_same(model.float_to_integer(to, source, bits, "rz"), host(f"{to} {source} rz", bits), bits)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("name", ["f32", "f64"])
def test_integral_values(name: str, rounding: str) -> None:
    bits = inputs(name)
    bits = bits[~is_nan(name, bits)]
    assert_same(model.round_to_integral(name, bits, rounding), host(f"integral {name} {rounding}", bits), bits)
