"""How the GPU divides in SiTU (docs/numerics.md), by few operations that are correctly rounded: quotients by a beta, in
kernels/common/activation.cuh, and reciprocals, in numerics/situ.h."""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

Array = np.ndarray


def rounded(x: Array, bits: int) -> Array:
    """To that many significant bits, ties to even."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits)


def nearest_float(x: Fraction) -> Fraction:
    """The same to 24 bits, of a rational."""
    if x == 0:
        return x
    exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()
    exponent -= abs(x) < Fraction(2) ** exponent
    unit = Fraction(2) ** (exponent - 23)
    return round(x / unit) * unit


@pytest.mark.parametrize("bits", range(3, 12))
def test_all_pairs(bits: int) -> None:
    """Every operation is exact in float64 before it is rounded, but the quotients, which are near no midpoint."""
    mantissas = np.arange(2 ** (bits - 1), 2**bits).astype(np.float64)
    n, d = mantissas[:, None], mantissas[None, :]
    r = rounded(1 / d, bits)
    quotient = rounded(n * r, bits)
    residual = rounded(n - quotient * d, bits)
    np.testing.assert_array_equal(rounded(quotient + residual * r, bits), rounded(n / d, bits))
    assert bits < 5 or (quotient != rounded(n / d, bits)).any()  # the correction is needed


def hard_pairs() -> Iterator[tuple[int, int]]:
    """Mantissas whose quotient is k / (2 * d) ulp from a midpoint, |k| <= 7, and neighbours of 2^24."""
    generator = random.Random(3)
    divisors = [generator.randrange(2**23, 2**24) | 1 for _ in range(1000)]
    for d in [*divisors, *range(2**24 - 201, 2**24, 2)]:
        for shift in (24, 25):
            inverse = pow(2**shift, -1, d)
            for k in (-7, -5, -3, -2, -1, 1, 2, 3, 5, 7):
                first = k * inverse % d
                yield from ((n, d) for n in (first, first + d) if 2**23 <= n < 2**24)
    for below in range(1, 30):
        yield from ((2**24 - more, 2**24 - below) for more in range(below, 30))


def test_hard_pairs() -> None:
    for n, d in hard_pairs():
        r = nearest_float(Fraction(1, d))
        quotient = nearest_float(n * r)
        residual = nearest_float(n - quotient * d)
        assert nearest_float(quotient + residual * r) == nearest_float(Fraction(n, d)), (n, d)


@pytest.mark.parametrize("bits", range(3, 16))
def test_reciprocals(bits: int) -> None:
    """One correction of either neighbour of 1/d, for every mantissa but the largest, which takes the upper one."""
    d = np.arange(2 ** (bits - 1), 2**bits).astype(np.float64)
    want = rounded(1 / d, bits)
    unit = np.ldexp(1.0, np.frexp(1 / d)[1] - bits)
    for below in (True, False):
        approximate = (np.floor if below else np.ceil)(1 / d / unit) * unit
        error = rounded(1 - d * approximate, bits)
        wrong = rounded(approximate + approximate * error, bits) != want
        assert not wrong[:-1].any()
        assert wrong[-1] == below
