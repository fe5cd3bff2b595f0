"""Dot products of the tensor-core model against exact sums with the truncation rule applied."""

from __future__ import annotations

import numpy as np
import pytest
from mma_reference import (
    FORMATS,
    NAN,
    Terms,
    accumulator_terms,
    concatenate,
    fields,
    fraction_sum,
    fraction_to_f32,
    many_to_f32,
)
from numpy.typing import NDArray
from ptxrun.build import core

model = core().model

U8 = NDArray[np.uint8]
U32 = NDArray[np.uint32]
M, N, GROUPS = 128, 64, 4
COUNTS = [pytest.param(20_000, id="20k"), pytest.param(1_000_000, id="1M", marks=pytest.mark.full)]
FP4_FRACTION_BITS = 35
# rule of the model -> fraction bits of the alignment, fraction bits of the result
RULES = {"hopper": (25, 23), "hopper_fp8_wgmma": (13, 13), "tcgen05": (25, 23)}


def fp4_scales(rng: np.random.Generator, shape: tuple[int, ...], style: str) -> U8:
    """ue4m3 without NaN: all of them, of one binade, or far apart; the sign bit is noise."""
    low, high = {"any": (0, 0x7F), "near": (0x30, 0x40), "extreme": (0, 0x7F)}[style]
    bits = rng.integers(low, high, shape, dtype=np.uint8)
    if style == "extreme":
        bits = np.where(rng.random(shape) < 0.5, bits % 10, 0x7E - bits % 10).astype(np.uint8)
    return bits | rng.choice(np.array([0, 0x80], np.uint8), shape)


def fp4_terms(a: U8, a_scales: U8, b: U8, b_scales: U8, ue8m0: bool = False) -> Terms:
    """Group sums times scales of every output, by integer matrix products. Quarters times eighths times eighths."""

    def halves(packed: U8) -> NDArray[np.int64]:
        nibbles = np.stack([packed & 15, packed >> 4], axis=-1).reshape(packed.shape[0], GROUPS, 16)
        numerator, exponent = fields("e2m1", nibbles)
        return numerator * np.where(numerator == 0, 1, 2 ** np.maximum(exponent, 0))

    def scale(bits: U8) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if ue8m0:
            return np.full(bits.shape, 8, np.int64), bits.astype(np.int64) - 127
        return fields("e4m3", bits & 0x7F)

    dots = np.einsum("igk,jgk->ijg", halves(a), halves(b))
    (a_num, a_exp), (b_num, b_exp) = scale(a_scales), scale(b_scales)
    numerator = dots * a_num[:, None] * b_num[None]
    exponent = a_exp[:, None] + b_exp[None]
    return Terms(*(x.reshape(-1, GROUPS) for x in (numerator, exponent, np.full(numerator.shape, 8))))


def accumulators(rng: np.random.Generator, terms: Terms, style: str) -> U32:
    """f32 bits: zeros, cancelling the sum, of any magnitude, subnormal."""
    count = terms.numerator.shape[0]
    if style == "cancel":
        values = np.ldexp(terms.numerator.astype(np.float64), terms.exponent - terms.point).sum(axis=1)
        noise = 1 + rng.integers(-2, 3, count) * 2.0**-23
        return (-values * noise).astype(np.float32).view(np.uint32)
    bits = rng.integers(0, 1 << 32, count, dtype=np.uint32, endpoint=False)
    if style == "near":
        bits = (bits & np.uint32(0x80FFFFFF)) | np.uint32(0x42000000)
    if style == "subnormal":
        bits &= np.uint32(0x807FFFFF)
    if style == "zero":
        bits &= np.uint32(0x80000000)
    special = (bits & 0x7F800000) == 0x7F800000
    return np.where(special, bits & np.uint32(0xBFFFFFFF), bits)


def assert_same_bits(got: U32, expected: U32) -> None:
    wrong = np.flatnonzero(got.ravel() != expected.ravel())
    assert wrong.size == 0, [f"{i}: {got.ravel()[i]:#x}, expected {expected.ravel()[i]:#x}" for i in wrong[:5]]


FP4_STYLES = [(s, c) for s in ("any", "near", "extreme") for c in ("any", "near", "cancel", "zero", "subnormal")]


def fp4_case(rng: np.random.Generator, m: int, scale_style: str) -> tuple[U8, U8, U8, U8]:
    a, b = (rng.integers(0, 256, (rows, 32), dtype=np.uint8) for rows in (m, N))
    return a, fp4_scales(rng, (m, GROUPS), scale_style), b, fp4_scales(rng, (N, GROUPS), scale_style)


@pytest.mark.parametrize("count", COUNTS)
def test_fp4_steps_against_exact_sums(count: int) -> None:
    rng = np.random.default_rng(35)
    m = min(M, count // (len(FP4_STYLES) * N))
    for step in range(-(-count // (m * N))):
        scale_style, c_style = FP4_STYLES[step % len(FP4_STYLES)]
        a, a_scales, b, b_scales = fp4_case(rng, m, scale_style)
        terms = fp4_terms(a, a_scales, b, b_scales)
        c = accumulators(rng, terms, c_style)
        got = model.dot_step_fp4(a, a_scales, b, b_scales, c.reshape(m, N))
        assert_same_bits(got, many_to_f32(concatenate([terms, accumulator_terms(c)]), FP4_FRACTION_BITS))


def test_fp4_steps_against_fractions() -> None:
    rng = np.random.default_rng(36)
    for scale_style, c_style in FP4_STYLES:
        a, a_scales, b, b_scales = (x[:2] for x in fp4_case(rng, 2, scale_style))
        terms = fp4_terms(a, a_scales, b, b_scales)
        c = accumulators(rng, terms, c_style)
        every = concatenate([terms, accumulator_terms(c)])
        expected = [fraction_to_f32(fraction_sum(every, i, FP4_FRACTION_BITS)) for i in range(c.size)]
        assert many_to_f32(every, FP4_FRACTION_BITS).tolist() == expected
        assert model.dot_step_fp4(a, a_scales, b, b_scales, c.reshape(2, 2)).ravel().tolist() == expected


def test_fp4_steps_with_ue8m0_scales() -> None:
    rng = np.random.default_rng(37)
    for spread in (3, 40, 254):
        a, _, b, _ = fp4_case(rng, 16, "near")
        low, high = 127 - spread // 2, 128 + spread // 2
        a_scales, b_scales = (rng.integers(low, high, (rows, 4), dtype=np.uint8) for rows in (16, N))
        terms = fp4_terms(a, a_scales, b, b_scales, ue8m0=True)
        c = accumulators(rng, terms, "near")
        got = model.dot_step_fp4(a, a_scales, b, b_scales, c.reshape(16, N), ue8m0=True)
        assert_same_bits(got, many_to_f32(concatenate([terms, accumulator_terms(c)]), FP4_FRACTION_BITS))


def test_fp4_special_values() -> None:
    ones = np.full((1, 32), 0x22, np.uint8)
    unit, nan_scale = np.full((1, 4), 0x38, np.uint8), np.array([[0x38, 0x38, 0xFF, 0x38]], np.uint8)

    def step(a_scales: U8, b_scales: U8, c: int, **options: bool) -> int:
        return int(model.dot_step_fp4(ones, a_scales, ones, b_scales, np.array([[c]], np.uint32), **options)[0, 0])

    assert step(unit, unit, 0) == 0x42800000  # 64
    assert step(unit | np.uint8(0x80), unit, 0) == 0x42800000
    assert step(unit, unit, 0x7FFFFFFF, accumulate=False) == 0x42800000
    assert step(nan_scale, unit, 0) == NAN
    assert step(unit, nan_scale, 0) == NAN
    assert step(unit, unit, 0xFF800001) == NAN
    assert step(unit, unit, 0xFF800000) == 0xFF800000
    assert step(unit, unit, 0xC2800000) == 0  # a sum of zero is +0


DOT_CASES = [
    ("hopper", "f16", "f16", 16),
    ("hopper", "bf16", "bf16", 16),
    ("hopper", "e4m3", "e5m2", 32),
    ("hopper_fp8_wgmma", "e4m3", "e4m3", 32),
    ("hopper_fp8_wgmma", "e5m2", "e4m3", 32),
    ("tcgen05", "f16", "f16", 16),
    ("tcgen05", "e4m3", "e2m1", 32),
]


def elements(rng: np.random.Generator, name: str, shape: tuple[int, int], style: str) -> NDArray[np.uint16]:
    form = FORMATS[name]
    bits = rng.integers(0, 1 << form.width, shape, dtype=np.uint32)
    field_max = (1 << form.exponent_bits) - 1
    if name != "e2m1":  # neither infinities nor NaN
        field = rng.integers(0, field_max, shape, dtype=np.uint32)
        if style == "near":
            field = form.bias + rng.integers(-2, 3, shape).astype(np.uint32)
        if style == "extreme":
            field = np.where(rng.random(shape) < 0.5, field % 3, field_max - 1 - field % 3).astype(np.uint32)
        bits = (bits & ~np.uint32(field_max << form.fraction_bits)) | (field << np.uint32(form.fraction_bits))
    bits[rng.random(shape) < 0.05] = 0
    return bits.astype(np.uint16)


def dot_terms(a_name: str, a: NDArray[np.uint16], b_name: str, b: NDArray[np.uint16]) -> Terms:
    (a_num, a_exp), (b_num, b_exp) = fields(a_name, a), fields(b_name, b)
    numerator, exponent = a_num[:, None] * b_num[None], a_exp[:, None] + b_exp[None]
    point = np.full(numerator.shape, FORMATS[a_name].fraction_bits + FORMATS[b_name].fraction_bits)
    return Terms(*(x.reshape(-1, a.shape[1]) for x in (numerator, exponent, point)))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(("rule", "a_name", "b_name", "k"), DOT_CASES)
def test_dot_steps_against_exact_sums(rule: str, a_name: str, b_name: str, k: int, count: int) -> None:
    rng = np.random.default_rng(25)
    styles = [(e, c) for e in ("any", "near", "extreme") for c in ("any", "near", "cancel", "zero", "subnormal")]
    m = min(M, count // (len(DOT_CASES) * len(styles) * N) + 1)
    for step in range(max(len(styles), -(-count // (len(DOT_CASES) * m * N)))):
        element_style, c_style = styles[step % len(styles)]
        a, b = elements(rng, a_name, (m, k), element_style), elements(rng, b_name, (N, k), element_style)
        terms = dot_terms(a_name, a, b_name, b)
        with np.errstate(over="ignore"):
            c = accumulators(rng, terms, c_style)
        c = np.where((c & 0x7F800000) == 0x7F800000, c & np.uint32(0x80FFFFFF), c)
        got = model.dot_step(rule, a_name, a, b_name, b, c.reshape(m, N))
        assert_same_bits(got, many_to_f32(concatenate([terms, accumulator_terms(c)]), *RULES[rule]))


@pytest.mark.parametrize(("rule", "a_name", "b_name", "k"), DOT_CASES)
def test_dot_steps_against_fractions(rule: str, a_name: str, b_name: str, k: int) -> None:
    rng = np.random.default_rng(26)
    for style in ("any", "near", "extreme"):
        a, b = elements(rng, a_name, (4, k), style), elements(rng, b_name, (4, k), style)
        terms = dot_terms(a_name, a, b_name, b)
        c = accumulators(rng, terms, "near")
        every = concatenate([terms, accumulator_terms(c)])
        fraction_bits, kept = RULES[rule]
        expected = [fraction_to_f32(fraction_sum(every, i, fraction_bits), kept) for i in range(c.size)]
        assert model.dot_step(rule, a_name, a, b_name, b, c.reshape(4, 4)).ravel().tolist() == expected


def test_zeros_take_part_in_the_alignment() -> None:
    rng = np.random.default_rng(29)

    def with_exponents(rows: int, exponent: int) -> NDArray[np.uint16]:
        bits = rng.integers(0, 1 << 16, (rows, 16), dtype=np.uint32) & np.uint32(0x807F)
        field = 127 + exponent + rng.integers(-4, 5, (rows, 16))
        return (bits | field.astype(np.uint32) << np.uint32(7)).astype(np.uint16)

    a, b = with_exponents(32, -100), with_exponents(32, -30)
    a[:, 15], b[:, 15] = 0, 0x4980  # 0 * 2^20 counts with exponent -106
    terms = dot_terms("bf16", a, "bf16", b)
    c = np.zeros(32 * 32, np.uint32)
    got = model.dot_step("hopper", "bf16", a, "bf16", b, c.reshape(32, 32))
    assert_same_bits(got, many_to_f32(concatenate([terms, accumulator_terms(c)]), 25))


def test_block_scales_shift_the_alignment() -> None:
    rng = np.random.default_rng(27)
    a, b = elements(rng, "e4m3", (16, 32), "any"), elements(rng, "e5m2", (24, 32), "any")
    a_scales, b_scales = (rng.integers(-60, 60, rows, dtype=np.int8) for rows in (16, 24))
    terms = dot_terms("e4m3", a, "e5m2", b)
    shift = (a_scales.astype(np.int64)[:, None] + b_scales.astype(np.int64)[None]).reshape(-1, 1)
    scaled = Terms(terms.numerator, terms.exponent + shift, terms.point)
    c = accumulators(rng, terms, "near")
    got = model.dot_step("tcgen05", "e4m3", a, "e5m2", b, c.reshape(16, 24), a_scales=a_scales, b_scales=b_scales)
    assert_same_bits(got, many_to_f32(concatenate([scaled, accumulator_terms(c)]), 25))


def test_small_integers_are_exact() -> None:
    rng = np.random.default_rng(28)
    a, b = (rng.integers(-8, 9, (rows, 16)).astype(np.float16) for rows in (64, 24))
    c = rng.integers(-1000, 1000, (64, 24)).astype(np.float32)
    operands = ("f16", a.view(np.uint16), "f16", b.view(np.uint16), c.view(np.uint32))
    product = a.astype(np.float32) @ b.astype(np.float32).T
    np.testing.assert_array_equal(model.dot_step("hopper", *operands).view(np.float32), product + c)
    negated = model.dot_step("hopper", *operands, accumulate=False, negate_a=True)
    np.testing.assert_array_equal(negated.view(np.float32), -product + 0.0)


def test_infinities_and_nans() -> None:
    def step(a: float, b: float, c: float, negate_a: bool = False, rule: str = "hopper") -> int:
        left, right = (np.array([[x] + [0] * 15], np.float16).view(np.uint16) for x in (a, b))
        bits = np.array([[c]], np.float32).view(np.uint32)
        return int(model.dot_step(rule, "f16", left, "f16", right, bits, True, negate_a)[0, 0])

    inf, nan = float("inf"), float("nan")
    assert step(inf, 2, 1) == 0x7F800000
    assert step(inf, -2, 1) == 0xFF800000
    assert step(inf, 2, 1, negate_a=True) == 0xFF800000
    assert step(inf, 2, -inf) == NAN
    assert step(inf, 2, -inf, negate_a=True) == 0xFF800000
    assert step(inf, 0, 1) == NAN
    assert step(nan, 1, 1) == NAN
    assert step(1, 1, inf) == 0x7F800000
    assert step(65504, 65504, 3.4028235e38) == 0x7F7FFFFF


def test_f16_accumulators_round_to_nearest_even() -> None:
    left, right = (np.array([[x] + [0] * 15], np.float16).view(np.uint16) for x in (1, 2.0**-11))
    for c, expected in ((1.0, 0x3C00), (1.0009765625, 0x3C02), (65504.0, 0x7BFF)):
        bits = np.array([[c]], np.float16).view(np.uint16).astype(np.uint32)
        assert int(model.dot_step("hopper_f16", "f16", left, "f16", right, bits)[0, 0]) == expected
