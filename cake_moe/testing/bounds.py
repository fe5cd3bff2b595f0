"""Intervals that must hold a backend's float32 SiTU and requantisation, from intervals of its accumulators.

u = 2^-24 is the unit roundoff of float32; ulp(x) <= 2u|x|. The formula and its order of operations are those of
src/numerics/situ.h: gs = g*a; us = u*a; p = b*T(gs/b); q = l*T(us/l); v = (p*S(gs))*q, T and S within 4 ulp.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cake_moe.testing.accumulate import UNIT

SMALLEST = 2.0**-149  # the smallest float32; an underflowing operation is off by at most half of it


def situ_interval(
    gate: tuple[Tensor, Tensor],
    up: tuple[Tensor, Tensor],
    a: Tensor,
    b: Tensor,
    l: Tensor,  # noqa: E741
) -> tuple[Tensor, Tensor]:
    """Ends (float64) of an interval that holds the float32 SiTU of accumulators in `gate` and `up` (lower, upper).

    Exact part: p and S grow with G = a*g and q grows with U = a*u, so their values at the ends enclose them, and
    interval products enclose v. Rounding, to first order and relative to each factor:
      p: gs and gs/b one rounding each, and |z| * tanh'(z) <= |tanh(z)|, so 2u; T itself 4 ulp <= 8u; times b 1u: 11u.
      q: likewise 11u.
      S: gs one rounding, amplified by |G| * (1 - sigmoid(G)); S itself 8u.
      two more products: 2u.
    Together 32u + |G| * sigmoid(-G) * u; 34u covers the higher orders. Underflow: each of p, q and S is off by at most
    5 * (1 + |b|) * 2^-149 (5 * (1 + |l|), 5) more, which the other factors, at most |b|, |l| and 1, multiply:
    together below 16 * (1 + |b|) * (1 + |l|) * 2^-149.
    """

    def ordered(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.minimum(x, y), torch.maximum(x, y)

    def product(x: tuple[Tensor, Tensor], y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        corners = torch.stack([x[0] * y[0], x[0] * y[1], x[1] * y[0], x[1] * y[1]])
        return corners.amin(dim=0), corners.amax(dim=0)

    a, b, l = a.double(), b.double(), l.double()  # noqa: E741
    g = ordered(a * gate[0], a * gate[1])
    u = ordered(a * up[0], a * up[1])
    p = (b * torch.tanh(g[0] / b), b * torch.tanh(g[1] / b))
    q = (l * torch.tanh(u[0] / l), l * torch.tanh(u[1] / l))
    s = (torch.sigmoid(g[0]), torch.sigmoid(g[1]))
    low, high = product(product(p, s), q)
    amplification = torch.maximum(g[0].abs(), g[1].abs()) * torch.sigmoid(-g[0])
    relative = (34 + 1.01 * amplification) * UNIT
    floor = 16 * (1 + b.abs()) * (1 + l.abs()) * SMALLEST
    return low - relative * low.abs() - floor, high + relative * high.abs() + floor


def magnitude_interval(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Interval of |v| for v in [low, high]."""
    largest = torch.maximum(low.abs(), high.abs())
    smallest = torch.where((low <= 0) & (high >= 0), 0.0, torch.minimum(low.abs(), high.abs()))
    return smallest, largest


def widen(low: Tensor, high: Tensor, roundings: int) -> tuple[Tensor, Tensor]:
    """The interval of float32 results after that many roundings of a value in [low, high]; one more for the rest."""
    relative = (roundings + 1) * UNIT
    return low - relative * low.abs() - roundings * SMALLEST, high + relative * high.abs() + roundings * SMALLEST
