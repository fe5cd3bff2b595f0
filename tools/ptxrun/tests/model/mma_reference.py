"""The truncation rule of tensor-core sums, evaluated on exact numbers: once with fractions, once for many at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import NDArray

ZERO_EXPONENT = -126  # with which a zero enters the alignment
NAN = 0x7FFFFFFF


@dataclass(frozen=True)
class Format:
    """Fields of an element format: sign bit, exponent, fraction."""

    exponent_bits: int
    fraction_bits: int
    bias: int

    @property
    def width(self) -> int:
        return 1 + self.exponent_bits + self.fraction_bits


FORMATS = {
    "f32": Format(8, 23, 127),
    "f16": Format(5, 10, 15),
    "bf16": Format(8, 7, 127),
    "e4m3": Format(4, 3, 7),
    "e5m2": Format(5, 2, 15),
    "e2m1": Format(2, 1, 1),
}


def fields(name: str, bits: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Signed numerator over 2^fraction_bits, and the exponent that the alignment sees. Finite elements only."""
    form, bits = FORMATS[name], bits.astype(np.int64)
    fraction = bits & ((1 << form.fraction_bits) - 1)
    field = (bits >> form.fraction_bits) & ((1 << form.exponent_bits) - 1)
    numerator = np.where(field > 0, fraction + (1 << form.fraction_bits), fraction)
    exponent = np.where(numerator == 0, ZERO_EXPONENT, np.maximum(field, 1) - form.bias)
    return np.where(bits >> (form.width - 1) & 1, -numerator, numerator), exponent


@dataclass(frozen=True)
class Terms:
    """What is summed for each of many outputs: numerator * 2^(exponent - point), all integers of shape [outputs, n]."""

    numerator: NDArray[np.int64]
    exponent: NDArray[np.int64]
    point: NDArray[np.int64]


def concatenate(parts: Sequence[Terms]) -> Terms:
    return Terms(*(np.concatenate([getattr(p, f) for p in parts], axis=1) for f in ("numerator", "exponent", "point")))


def accumulator_terms(bits: NDArray[np.uint32]) -> Terms:
    numerator, exponent = fields("f32", bits)
    return Terms(numerator[:, None], exponent[:, None], np.full((bits.size, 1), 23))


def fraction_sum(terms: Terms, row: int, fraction_bits: int) -> Fraction:
    """One output by the definition: each term cut to a multiple of 2^(largest exponent - fraction_bits)."""
    largest = max(int(e) for e in terms.exponent[row])
    quantum = Fraction(2) ** (largest - fraction_bits)
    total = Fraction(0)
    columns = zip(terms.numerator[row], terms.exponent[row], terms.point[row], strict=True)
    for numerator, exponent, point in columns:
        value = int(numerator) * Fraction(2) ** int(exponent - point)
        total += int(value / quantum) * quantum  # int() cuts toward zero
    return total


def fraction_to_f32(value: Fraction, fraction_bits: int = 23) -> int:
    """Toward zero, with `fraction_bits` bits of the significand; infinity from 2^128 on."""
    if value == 0:
        return 0
    sign = 0x80000000 if value < 0 else 0
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= magnitude < Fraction(2) ** exponent
    exponent = max(exponent, -126)
    if exponent > 127:
        return sign | 0x7F800000
    units = int(magnitude / Fraction(2) ** (exponent - fraction_bits)) << (23 - fraction_bits)
    return sign | units if units < 1 << 23 else sign | ((exponent + 127) << 23) | (units - (1 << 23))


@cache
def powers() -> NDArray[np.object_]:
    return np.array([1 << i for i in range(1200)], dtype=object)


def many_to_f32(terms: Terms, fraction_bits: int, kept: int = 23) -> NDArray[np.uint32]:
    """All outputs with integers of unlimited size."""
    largest = terms.exponent.max(axis=1, keepdims=True)
    shift = terms.exponent - terms.point - largest + fraction_bits
    magnitude = np.abs(terms.numerator).astype(object)
    scaled = magnitude * powers()[np.maximum(shift, 0)] // powers()[np.maximum(-shift, 0)]
    total = np.where(terms.numerator < 0, -scaled, scaled).sum(axis=1)
    # |total| < 2^53, so that a double holds it; cutting it is a matter of its own exponent.
    value = total.astype(np.float64)
    _, exponent = np.frexp(value)
    unit = np.maximum(exponent + largest[:, 0] - fraction_bits - 1, -126) - kept
    cut = np.trunc(np.ldexp(value, largest[:, 0] - fraction_bits - unit))
    with np.errstate(over="ignore"):
        result = np.ldexp(cut, unit).astype(np.float32)
    return np.where(cut == 0, np.float32(0) * np.sign(value).astype(np.float32), result).view(np.uint32)
