"""Floating-point arithmetic against numpy, whose operations are IEEE 754's, and exact rationals for fma."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from elementwise import Case, check, run_body
from numpy.typing import NDArray

NAN = 0x7FFFFFFF
EDGES = np.array(
    [0x00000000, 0x80000000, 0x00000001, 0x807FFFFF, 0x00800000, 0x80800000, 0x3F800000, 0xBF800000, 0x3F800001,
     0x40490FDB, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001, 0x34000000,
     0x4B800001, 0xC1234567, 0x0DA24260, 0x00400000],
    np.uint32,
)  # fmt: skip


def floats(bits: Sequence[int]) -> NDArray[np.float32]:
    return np.array(bits, np.uint32).view(np.float32)


def pairs(count: int) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(3)
    values = list(product(*[[int(bits) for bits in EDGES]] * count))
    extra = rng.integers(0, 1 << 32, (500, count), dtype=np.uint64)
    near = (rng.integers(0x3F000000, 0x41000000, (500, count), dtype=np.uint64)).tolist()
    return values + [tuple(row) for row in extra.tolist()] + [tuple(row) for row in near]


def flush(x: NDArray[np.float32]) -> NDArray[np.float32]:
    bits = x.view(np.uint32)
    return np.where(bits & 0x7F800000 == 0, bits & 0x80000000, bits).astype(np.uint32).view(np.float32)


def canonical(x: NDArray[np.float32]) -> NDArray[np.uint32]:
    return np.where(np.isnan(x), np.uint32(NAN), x.view(np.uint32))


BINARY: dict[str, Callable[..., NDArray[np.float32]]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("ftz", [False, True])
def test_binary_f32(name: str, ftz: bool) -> None:
    values = pairs(2)
    sources = [floats([value[i] for value in values]) for i in range(2)]
    spelling = f"{name}.rn{'.ftz' if ftz else ''}.f32"
    with np.errstate(all="ignore"):
        if ftz:
            sources = [flush(x) for x in sources]
        expected = BINARY[name](*sources)
        expected = flush(expected) if ftz else expected
    result = run_body(f"  {spelling} %r, %a0, %a1;", ("f32", "f32"), "f32", values).astype(np.uint32)
    assert np.array_equal(result, canonical(expected))


def saturate(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.where(x > 0, np.minimum(x, np.float32(1)), np.float32(0)).astype(np.float32)


def test_saturation() -> None:
    values = pairs(2)
    a, b = (floats([value[i] for value in values]) for i in range(2))
    with np.errstate(all="ignore"):
        expected = saturate(a * b)
    result = run_body("  mul.sat.f32 %r, %a0, %a1;", ("f32", "f32"), "f32", values).astype(np.uint32)
    assert np.array_equal(result, expected.view(np.uint32))


def exact(bits: int) -> Fraction:
    return Fraction(float(floats([bits])[0]))


def nearest(value: Fraction, like: float) -> np.float32:
    """`value` rounded to the nearest float; ties to even. `like`: a float close to it."""
    guess = np.float32(like)
    candidates = [np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf))]
    best = min(candidates, key=lambda x: (abs(Fraction(float(x)) - value), int(x.view(np.uint32)) & 1))
    return np.float32(best)


@pytest.mark.parametrize("spelling", ["fma.rn.f32", "mad.rn.f32"])
def test_fma_is_rounded_once(spelling: str) -> None:
    rng = np.random.default_rng(5)
    a = rng.integers(0x3F000000, 0x40800000, 4000, dtype=np.uint64)
    b = rng.integers(0x3F000000, 0x40800000, 4000, dtype=np.uint64)
    products = -(a.astype(np.uint32).view(np.float32) * b.astype(np.uint32).view(np.float32))
    values = [(int(x), int(y), int(z)) for x, y, z in zip(a, b, products.view(np.uint32), strict=True)]
    values += [(x, y, z ^ 0x80000000) for x, y, z in values[:1000]]
    result = run_body(f"  {spelling} %r, %a0, %a1, %a2;", ("f32",) * 3, "f32", values).astype(np.uint32)
    for (x, y, z), bits in zip(values, result, strict=True):
        value = exact(x) * exact(y) + exact(z)
        assert bits == nearest(value, float(value)).view(np.uint32)


@pytest.mark.parametrize("name", ["add", "mul"])
@pytest.mark.parametrize("rounding", ["rz", "rm", "rp"])
def test_directed_rounding(name: str, rounding: str) -> None:
    rng = np.random.default_rng(6)
    values = [tuple(row) for row in rng.integers(0x3E000000, 0x42000000, (2000, 2), dtype=np.uint64).tolist()]
    values += [(a | 0x80000000, b) for a, b in values[:1000]]
    result = run_body(f"  {name}.{rounding}.f32 %r, %a0, %a1;", ("f32",) * 2, "f32", values).astype(np.uint32)
    for (x, y), bits in zip(values, result, strict=True):
        value = exact(x) + exact(y) if name == "add" else exact(x) * exact(y)
        got = Fraction(float(floats([int(bits)])[0]))
        up = Fraction(float(np.nextafter(floats([int(bits)])[0], np.float32(np.inf))))
        down = Fraction(float(np.nextafter(floats([int(bits)])[0], np.float32(-np.inf))))
        if rounding == "rm" or (rounding == "rz" and value >= 0):
            assert got <= value < up
        else:
            assert down < value <= got


def min_max(a: int, b: int, is_max: bool, nan: bool) -> int:
    a_nan, b_nan = (x & 0x7FFFFFFF > 0x7F800000 for x in (a, b))
    if (a_nan and b_nan) or (nan and (a_nan or b_nan)):
        return NAN
    if a_nan or b_nan:
        return b if a_nan else a
    keys = [x if x < 0x80000000 else 0x7FFFFFFF - x for x in (a, b)]
    return (a, b)[keys.index(max(keys) if is_max else min(keys))]


@pytest.mark.parametrize("is_max", [False, True])
@pytest.mark.parametrize("nan", [False, True])
def test_min_max(is_max: bool, nan: bool) -> None:
    name = f"{'max' if is_max else 'min'}{'.NaN' if nan else ''}"
    f = lambda a, b: min_max(a, b, is_max, nan)  # noqa: E731
    check(Case(f"{name}.f32", ("f32", "f32"), "f32", f), pairs(2))
    three = Case(f"{name}.f32", ("f32",) * 3, "f32", lambda a, b, c: f(f(a, b), c))
    check(three, [row for row in product(*[[int(bits) for bits in EDGES[::3]]] * 3)])
    signs = Case(
        f"{name}.xorsign.abs.f32",
        ("f32", "f32"),
        "f32",
        lambda a, b: f(a & 0x7FFFFFFF, b & 0x7FFFFFFF) | (a ^ b) & 0x80000000,
    )
    check(signs, [row for row in pairs(2) if all(x & 0x7FFFFFFF <= 0x7F800000 for x in row)])


def test_signs() -> None:
    values = [(int(bits),) for bits in EDGES]
    check(Case("neg.f32", ("f32",), "f32", lambda a: a ^ 0x80000000), values)
    check(Case("abs.f32", ("f32",), "f32", lambda a: a & 0x7FFFFFFF), values)
    check(Case("neg.bf16x2", ("bf16x2",), "bf16x2", lambda a: a ^ 0x80008000), values)
    check(Case("abs.f16", ("f16",), "f16", lambda a: a & 0x7FFF), [(a & 0xFFFF,) for (a,) in values])
    check(Case("copysign.f32", ("f32", "f32"), "f32", lambda a, b: b & 0x7FFFFFFF | a & 0x80000000), pairs(2))


def test_f32x2_is_two_f32() -> None:
    rng = np.random.default_rng(7)
    halves = rng.integers(0x3F000000, 0x41000000, (3000, 6), dtype=np.uint64)
    values = [(r[0] | r[1] << 32, r[2] | r[3] << 32, r[4] | r[5] << 32) for r in halves.tolist()]
    low, high = ([halves[:, i + part].astype(np.uint32).view(np.float32) for i in (0, 2, 4)] for part in (0, 1))
    wide = lambda x: x.astype(np.float64)  # noqa: E731
    cases = {
        "add.rn.f32x2 %r, %a0, %a1": lambda a, b, c: a + b,
        "mul.rn.f32x2 %r, %a0, %a1": lambda a, b, c: a * b,
        # Exact products and their sums fit double precision here; the second rounding sees no false tie.
        "fma.rn.f32x2 %r, %a0, %a1, %a2": lambda a, b, c: (wide(a) * wide(b) + wide(c)).astype(np.float32),
    }
    for text, f in cases.items():
        result = run_body(f"  {text};", ("f32x2",) * 3, "f32x2", values)
        expected = f(*low).view(np.uint32).astype(np.uint64) | f(*high).view(np.uint32).astype(np.uint64) << 32
        assert np.array_equal(result, expected), text


def half_values(count: int) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(8)
    edge = [0, 0x8000, 1, 0x83FF, 0x0400, 0x3C00, 0xBC00, 0x3C01, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00]
    values = list(product(*[edge] * count))
    return values + [tuple(row) for row in rng.integers(0, 1 << 16, (3000, count)).tolist()]


def f16(bits: Sequence[int]) -> NDArray[np.float16]:
    return np.array(bits, np.uint16).view(np.float16)


@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_f16(name: str) -> None:
    values = half_values(2)
    a, b = (f16([value[i] for value in values]) for i in range(2))
    with np.errstate(all="ignore"):
        expected = BINARY[name](a, b)
    result = run_body(f"  {name}.rn.f16 %r, %a0, %a1;", ("f16", "f16"), "f16", values).astype(np.uint16)
    assert np.array_equal(result, np.where(np.isnan(expected), np.uint16(0x7FFF), expected.view(np.uint16)))


def test_pairs_are_two_elements() -> None:
    values = half_values(2)
    a, b = (np.array([value[i] for value in values], np.uint64) for i in range(2))
    packed = [(int(x), int(y)) for x, y in zip(a | b << np.uint64(16), b | a << np.uint64(16), strict=True)]
    for kind in ("f16", "bf16"):
        single = run_body(f"  mul.rn.{kind} %r, %a0, %a1;", (kind, kind), kind, values).astype(np.uint64)
        # Multiplication commutes, so both halves are the product of a and b.
        double = run_body(f"  mul.rn.{kind}x2 %r, %a0, %a1;", (f"{kind}x2",) * 2, f"{kind}x2", packed)
        assert np.array_equal(double, single | single << np.uint64(16))


@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_bf16_is_rounded_once(name: str) -> None:
    """Against exact rationals: a result is the closest bf16, on a tie the even one."""
    rng = np.random.default_rng(13)
    values = [tuple(row) for row in rng.integers(0x3000, 0x4800, (3000, 2)).tolist()]
    values += [(a | 0x8000, b) for a, b in values[:1000]]
    to_exact = lambda bits: Fraction(float(floats([bits << 16])[0]))  # noqa: E731
    result = run_body(f"  {name}.rn.bf16 %r, %a0, %a1;", ("bf16", "bf16"), "bf16", values).astype(np.uint32)
    for (x, y), bits in zip(values, result.tolist(), strict=True):
        a, b = to_exact(x), to_exact(y)
        value = {"add": a + b, "sub": a - b, "mul": a * b}[name]
        error = abs(to_exact(bits) - value)
        for neighbour in (bits - 1, bits + 1):
            if neighbour & 0x7FFF < 0x7F80 and bits & 0x7FFF:
                other = abs(to_exact(neighbour) - value)
                assert error < other or (error == other and bits % 2 == 0), (hex(x), hex(y))


def test_f16_fma_is_rounded_once() -> None:
    values = [v for v in half_values(3) if all(x & 0x7C00 != 0x7C00 for x in v)]
    result = run_body("  fma.rn.f16 %r, %a0, %a1, %a2;", ("f16",) * 3, "f16", values).astype(np.uint16)
    for (x, y, z), bits in zip(values, result, strict=True):
        a, b, c = (Fraction(float(f16([v])[0])) for v in (x, y, z))
        value = a * b + c
        with np.errstate(all="ignore"):
            guess = np.float16(float(value))
            near = [np.nextafter(guess, np.float16(-np.inf)), guess, np.nextafter(guess, np.float16(np.inf))]
        if value == 0 or any(np.isinf(n) for n in near):
            continue
        best = min(near, key=lambda n: (abs(Fraction(float(n)) - value), int(n.view(np.uint16)) & 1))
        assert bits == best.view(np.uint16), (x, y, z)


def test_bf16_fma_sees_a_tiny_addend() -> None:
    """9 * 29 = 261 lies between the bf16 numbers 260 and 262; what decides is far below double precision's last bit."""
    one = lambda x: int(np.float32(x).view(np.uint32)) >> 16  # noqa: E731
    values = [(one(9), one(29), c) for c in (0, one(2.0**-100), one(-(2.0**-100)))]
    result = run_body("  fma.rn.bf16 %r, %a0, %a1, %a2;", ("bf16",) * 3, "bf16", values)
    assert result.tolist() == [one(260), one(262), one(260)]


def test_f64() -> None:
    rng = np.random.default_rng(9)
    data = rng.standard_normal((1000, 2))
    values = [tuple(int(x) for x in row) for row in data.view(np.uint64)]
    for name, f in BINARY.items():
        result = run_body(f"  {name}.rn.f64 %r, %a0, %a1;", ("f64", "f64"), "f64", values)
        assert np.array_equal(result, f(data[:, 0], data[:, 1]).view(np.uint64))
    result = run_body("  sqrt.rn.f64 %r, %a0;", ("f64",), "f64", [(v[0] & ~(1 << 63),) for v in values])
    assert np.array_equal(result, np.sqrt(np.abs(data[:, 0])).view(np.uint64))


def test_exact_roots_and_reciprocals() -> None:
    values = [(int(bits),) for bits in EDGES]
    x = floats([value[0] for value in values])
    with np.errstate(all="ignore"):
        expected = {"sqrt": np.sqrt(x), "rcp": np.float32(1) / x}
    for name, floats_expected in expected.items():
        result = run_body(f"  {name}.rn.f32 %r, %a0;", ("f32",), "f32", values).astype(np.uint32)
        assert np.array_equal(result, canonical(floats_expected)), name


@pytest.mark.parametrize(
    "spelling", ["ex2.approx.ftz.f32", "rcp.approx.ftz.f32", "rsqrt.approx.f32", "lg2.approx.f32", "tanh.approx.f32"]
)
def test_approximations_are_the_rounded_values(spelling: str) -> None:
    rng = np.random.default_rng(10)
    x = np.abs(rng.standard_normal(2000)).astype(np.float32) + np.float32(0.01)
    functions: dict[str, Callable[..., NDArray[np.float64]]] = {
        "ex2": np.exp2,
        "rcp": np.reciprocal,
        "rsqrt": lambda y: 1 / np.sqrt(y),
        "lg2": np.log2,
        "tanh": np.tanh,
    }
    expected = functions[spelling.split(".")[0]](x.astype(np.float64))
    values = [(int(bits),) for bits in x.view(np.uint32)]
    result = run_body(f"  {spelling} %r, %a0;", ("f32",), "f32", values).astype(np.uint32).view(np.float32)
    # Half an ulp of the result, and the double's own error.
    assert np.all(np.abs(result - expected) <= np.spacing(np.abs(result)) * 0.500001)
