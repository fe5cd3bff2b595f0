"""cvt and cvta as kernels reach them: spellings, register widths, packing. The arithmetic itself: tests/model."""

from __future__ import annotations

import numpy as np
import pytest
from elementwise import Case, check, run_body, signed

ROUNDED = {
    "cvt.rn.bf16x2.f32": ("kBf16", 16),
    "cvt.rn.f16x2.f32": ("kF16", 16),
    "cvt.rn.satfinite.e4m3x2.f32": ("kE4m3", 8),
    "cvt.rn.satfinite.e2m1x2.f32": ("kE2m1", 4),
    "cvt.rn.satfinite.e5m2x2.f32": ("kE5m2", 8),
}


def small(value: float, exponent_bits: int, fraction_bits: int, bias: int, largest: int, *, infinite: bool) -> int:
    """Round to nearest even by search: the code whose value is closest."""
    sign = int(np.signbit(value)) << (exponent_bits + fraction_bits)
    magnitude = abs(value)

    def decode(code: int) -> float:
        exponent, fraction = code >> fraction_bits, code & ((1 << fraction_bits) - 1)
        if exponent == 0:
            return fraction * 2.0 ** (1 - bias - fraction_bits)
        return (1 + fraction * 2.0**-fraction_bits) * 2.0 ** (exponent - bias)

    low, high = 0, largest + (1 if infinite else 0)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if decode(middle) <= magnitude else (low, middle)
    if decode(high) <= magnitude:
        return sign | high
    below, above = magnitude - decode(low), decode(high) - magnitude
    nearest = low if below < above or (below == above and low % 2 == 0) else high
    return sign | nearest


FORMATS = {
    "kBf16": (8, 7, 127, 0x7F7F, True, 0x7FFF),
    "kF16": (5, 10, 15, 0x7BFF, True, 0x7FFF),
    "kE4m3": (4, 3, 7, 0x7E, False, 0x7F),
    "kE2m1": (2, 1, 1, 0x7, False, 0x7),
    "kE5m2": (5, 2, 15, 0x7B, False, 0x7F),
}


def f32_bits() -> np.ndarray:
    """Random patterns, every exponent, and the neighbourhood of every tie of the narrow formats."""
    rng = np.random.default_rng(11)
    patterns: list[np.ndarray] = [rng.integers(0, 1 << 32, 6000, dtype=np.uint64)]
    exponents = np.arange(256, dtype=np.uint64) << 23
    for fraction_bits in (1, 2, 3, 7, 10):
        ties = np.arange(0, 1 << 23, 1 << (22 - fraction_bits), dtype=np.uint64)
        chosen = rng.integers(100, 150, 400, dtype=np.uint64) << 23 | rng.choice(ties, 400)
        patterns += [chosen, chosen + 1, chosen - 1]
    patterns += [exponents, exponents | 0x400000, exponents | 0x80000000]
    return np.concatenate(patterns).astype(np.uint32)


@pytest.mark.parametrize("spelling", ROUNDED)
def test_pack_of_two_floats(spelling: str) -> None:
    """The first source goes to the upper half; subnormals, ties, overflow and NaN by search among the codes."""
    name, bits = ROUNDED[spelling]
    *parameters, infinite, nan = FORMATS[name]
    patterns = f32_bits()
    low = np.roll(patterns, 1)
    codes = {}
    for pattern in patterns:
        value = float(np.uint32(pattern).view(np.float32))
        codes[int(pattern)] = nan if np.isnan(value) else small(value, *parameters, infinite=bool(infinite))
    values = [(int(a), int(b)) for a, b in zip(patterns, low, strict=True)]
    kind = {16: "b32", 8: "b16", 4: "b8"}[bits]
    body = f"  {spelling} %r, %a0, %a1;" if bits > 4 else f"  {spelling} %n, %a0, %a1;\n  cvt.u16.u8 %r, %n;"
    registers = "" if bits > 4 else "  .reg .b8 %n;\n"
    result = run_body(body, ("f32", "f32"), "b16" if kind == "b8" else kind, values, registers)
    for (a, b), packed in zip(values, result.tolist(), strict=True):
        assert packed == codes[a] << bits | codes[b], (hex(a), hex(b))


def test_unpack_to_f16x2() -> None:
    values = [(code,) for code in range(1 << 16)]
    result = run_body("  cvt.rn.f16x2.e4m3x2 %r, %a0;", ("b16",), "b32", values).astype(np.uint32)
    for (codes,), packed in zip(values, result.tolist(), strict=True):
        for code, half in ((codes & 0xFF, packed & 0xFFFF), (codes >> 8, packed >> 16)):
            exponent, fraction = code >> 3 & 15, code & 7
            if code & 0x7F == 0x7F:
                assert half & 0x7FFF == 0x7FFF
                continue
            magnitude = fraction * 2.0**-9 if exponent == 0 else (1 + fraction / 8) * 2.0 ** (exponent - 7)
            expected = np.float16(-magnitude if code & 0x80 else magnitude)
            assert half == expected.view(np.uint16), hex(code)


def test_e2m1x2_unpack() -> None:
    table = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    values = [(code,) for code in range(256)]
    body = "  cvt.u8.u16 %n, %a0;\n  cvt.rn.f16x2.e2m1x2 %r, %n;"
    result = run_body(body, ("b16",), "b32", values, "  .reg .b8 %n;\n").astype(np.uint32).view(np.float16)
    for code, (low, high) in zip(range(256), result.reshape(-1, 2).tolist(), strict=True):
        for nibble, half in ((code & 15, low), (code >> 4, high)):
            assert half == (-1 if nibble & 8 else 1) * table[nibble & 7]


def extension(from_bits: int, is_signed: bool):  # type: ignore[no-untyped-def]
    return lambda a: signed(a, from_bits) if is_signed else a & ((1 << from_bits) - 1)


@pytest.mark.parametrize("to", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("source", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
def test_integers(to: str, source: str) -> None:
    bits = int(source[1:])
    register = source if bits > 8 else "b16"
    check(Case(f"cvt.{to}.{source}", (register,), to, extension(bits, source[0] == "s")))


def test_saturating_integers() -> None:
    check(Case("cvt.sat.s16.s32", ("s32",), "s16", lambda a: max(-32768, min(32767, a))))
    check(Case("cvt.sat.u8.s32", ("s32",), "b16", lambda a: max(0, min(255, a))))
    check(Case("cvt.sat.u32.s64", ("s64",), "u32", lambda a: max(0, min(0xFFFFFFFF, a))))


def test_float_and_integer() -> None:
    rng = np.random.default_rng(12)
    integers = [(int(x),) for x in rng.integers(0, 1 << 32, 3000, dtype=np.uint64)] + [(1 << 31,), (0xFFFFFFFF,)]
    as_float = lambda x: int(np.float32(x).view(np.uint32))  # noqa: E731
    check(Case("cvt.rn.f32.u32", ("u32",), "f32", as_float), integers)
    check(Case("cvt.rn.f32.s32", ("s32",), "f32", as_float), integers)
    floats = (rng.standard_normal(3000) * 1000).astype(np.float32)
    values = [(int(bits),) for bits in floats.view(np.uint32)]
    to_float = lambda bits: float(np.uint32(bits).view(np.float32))  # noqa: E731
    check(Case("cvt.rzi.s32.f32", ("f32",), "s32", lambda a: int(to_float(a))), values)
    check(Case("cvt.rmi.s32.f32", ("f32",), "s32", lambda a: int(np.floor(to_float(a)))), values)
    check(Case("cvt.rpi.s32.f32", ("f32",), "s32", lambda a: int(np.ceil(to_float(a)))), values)
    check(Case("cvt.rni.s32.f32", ("f32",), "s32", lambda a: int(np.rint(to_float(a)))), values)
    check(Case("cvt.rni.f32.f32", ("f32",), "f32", lambda a: as_float(np.rint(np.float32(to_float(a))))), values)
    limits = [(0x7F800000,), (0xFF800000,), (0x7FC00000,), (0x4F000000,)]
    expected = {0x7F800000: 0x7FFFFFFF, 0xFF800000: 0x80000000, 0x7FC00000: 0, 0x4F000000: 0x7FFFFFFF}
    check(Case("cvt.rzi.s32.f32", ("f32",), "s32", expected.__getitem__), limits)


def test_halves_and_floats() -> None:
    codes = [(code,) for code in range(1 << 16)]
    finite = [code for code in codes if code[0] & 0x7F80 != 0x7F80]
    check(Case("cvt.f32.bf16", ("bf16",), "f32", lambda a: a << 16), finite)
    halves = [code for code in codes if code[0] & 0x7C00 != 0x7C00]
    check(
        Case("cvt.f32.f16", ("f16",), "f32", lambda a: int(np.float32(np.uint16(a).view(np.float16)).view(np.uint32))),
        halves,
    )
