"""SiTU's own tanh and sigmoid: within 4 ulp of the true value for every float32, symmetric, monotone at the seams."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cake_moe import reference
from cake_moe._native import _C

Array = np.ndarray
FUNCTIONS = ("situ_tanh", "situ_sigmoid")


def exact(name: str, z: Array) -> Array:
    """In float64, well within 2^-50 relative."""
    x = z.astype(np.float64)
    if name == "situ_tanh":
        return np.tanh(x)
    with np.errstate(over="ignore"):
        small = np.exp(-np.abs(x))
        return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def ulps(got: Array, want: Array) -> Array:
    """|got - want| in units of the float32 spacing at want."""
    exponent = np.maximum(np.frexp(want)[1] - 24, -149)
    return np.abs(got.astype(np.float64) - want) / np.ldexp(1.0, exponent)


def neighbours(values: list[float]) -> Array:
    """Each value with the 64 floats on either side, and their negatives."""
    bits = np.array(values, dtype=np.float32).view(np.int32)
    near = (bits[:, None] + np.arange(-64, 65)).ravel().clip(0, 0x7F800000).astype(np.int32).view(np.float32)
    return np.concatenate([near, -near])


# Where the formulas change: argument clamps, octaves of the reduction, smallest normal result, subnormals, extremes.
_OCTAVES = [(k + half) * float(np.log(2)) / divisor for k in range(160) for half in (0, 0.5) for divisor in (1, 2)]
SEAMS = neighbours(
    [0.0, 1e-45, 2.0**-126, 1e-20, 2.0**-12, 1.0, 9.0, 10.0, 87.34, 88.72, 103.97, 104.0, 110.0, 3.4e38, *_OCTAVES]
)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_within_four_ulp(name: str) -> None:
    """Every 509th bit pattern (a prime, so that all mantissas are met) and the neighbourhood of every seam."""
    function = getattr(_C.numerics, name)
    patterns = np.arange(0, 2**32, 509, dtype=np.uint64).astype(np.uint32).view(np.float32)
    dense = np.linspace(-12, 12, 2_000_001).astype(np.float32)
    worst = 0.0
    for part in (*np.array_split(patterns, 8), dense, SEAMS):
        z = part[~np.isnan(part)]
        worst = max(worst, float(ulps(function(z), exact(name, z)).max()))
    print(f"{name}: {worst:.3f} ulp")
    assert worst <= 4


@pytest.mark.full
@pytest.mark.parametrize("sign", [0, 1])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_within_four_ulp_everywhere(name: str, sign: int) -> None:
    """Every float below 128 in magnitude: 1.1e9 a sign. From there on the strided test sees the constants."""
    function = getattr(_C.numerics, name)
    worst, end = 0.0, int(np.float32(128).view(np.uint32))
    for start in range(0, end, 2**22):
        z = np.arange(start, min(start + 2**22, end), dtype=np.uint32).view(np.float32)
        z = -z if sign else z
        worst = max(worst, float(ulps(function(z), exact(name, z)).max()))
    print(f"{name}, {'negative' if sign else 'positive'}: {worst:.3f} ulp")
    assert worst <= 4


def test_symmetry() -> None:
    z = np.concatenate([SEAMS, np.geomspace(1e-44, 1e38, 100_001).astype(np.float32)])
    np.testing.assert_array_equal(_C.numerics.situ_tanh(-z).view(np.int32), (-_C.numerics.situ_tanh(z)).view(np.int32))
    total = _C.numerics.situ_sigmoid(z).astype(np.float64) + _C.numerics.situ_sigmoid(-z)
    assert np.abs(total - 1).max() <= 8 * 2.0**-24  # 4 ulp of a value below 1 and 4 of one below 1/2, halved


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(name: str) -> None:
    function = getattr(_C.numerics, name)
    inf, nan = np.float32(np.inf), np.float32(np.nan)
    low = np.float32(-1 if name == "situ_tanh" else 0)
    zero = np.float32(0 if name == "situ_tanh" else 0.5)
    got = function(np.array([inf, -inf, 3e38, -3e38, 0.0, -0.0], dtype=np.float32))
    np.testing.assert_array_equal(got, [1, low, 1, low, zero, zero])
    assert np.isnan(function(np.array([nan, -nan], dtype=np.float32))).all()
    if name == "situ_tanh":
        assert np.signbit(got[5])
        assert not np.signbit(got[4])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_range(name: str) -> None:
    """Never above 1: the products with the betas stay below their caps."""
    z = np.concatenate([SEAMS, np.linspace(-120, 120, 1_000_001).astype(np.float32)])
    got = getattr(_C.numerics, name)(z)
    assert got.max() == 1
    assert got.min() == (-1 if name == "situ_tanh" else 0)


def test_situ_is_the_formula() -> None:
    """Against the reference in float64, within the error that the comparator derives for float32."""
    from cake_moe.testing.bounds import situ_interval

    generator = torch.Generator().manual_seed(0)
    for b, linear, a in ((4.0, 25.0, 0.37), (1.5, 6.25, 3e-3), (7.7, 48.0, 11.0)):
        scale = 2.0 ** torch.randint(-20, 9, (200_000,), generator=generator) / a
        g, u = (torch.randn(200_000, generator=generator) * scale for _ in range(2))
        constants = [torch.tensor([value]) for value in (a, b, linear)]
        got = torch.from_numpy(_C.numerics.situ(g.numpy(), u.numpy(), *(float(c) for c in constants))).double()
        low, high = situ_interval((g.double(), g.double()), (u.double(), u.double()), *constants)
        assert ((low <= got) & (got <= high)).all()
        want = reference.situ(g.double()[:, None], u.double()[:, None], *(c.expand(len(g)) for c in constants))[:, 0]
        assert ((low <= want) & (want <= high)).all()
        # The interval is tight: at moderate arguments it is a few tens of units in the last place wide.
        moderate = (g.abs() * a < 8) & (want.abs() > 1e-30)
        assert ((high - low) / want.abs())[moderate].max() < 128 * 2.0**-24


def test_betas_are_not_interchangeable() -> None:
    """Gate and up are capped by betas of their own (a swap of the halves would show)."""
    g, u = np.float32([3.0]), np.float32([9.0])
    assert _C.numerics.situ(g, u, 1.0, 4.0, 25.0) != _C.numerics.situ(g, u, 1.0, 25.0, 4.0)
    assert _C.numerics.situ(g, u, 1.0, 4.0, 25.0) != _C.numerics.situ(u, g, 1.0, 4.0, 25.0)
