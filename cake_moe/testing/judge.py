"""Whether elements whose bits are not those of the exact sum are ones that rounding may give."""

from __future__ import annotations

import torch
from torch import Tensor

from cake_moe import reference
from cake_moe.layout import E4M3_NAN, GROUP, INTERMEDIATE, decode_e4m3, encode_e2m1
from cake_moe.testing.accumulate import Accumulation, sum_is_exact
from cake_moe.testing.bounds import magnitude_interval, situ_interval, widen
from cake_moe.testing.rounding import bf16_cell, e2m1_cells, e4m3_cells
from cake_moe.testing.verdict import Mismatch


class BlockJudge:
    """Decides whether blocks of requantised values whose bits differ from the exactly summed ones may do so."""

    def __init__(
        self, first_row: int, chosen: Tensor, got: Tensor, got_scales: Tensor, encode: Tensor, bitwise: bool
    ) -> None:
        self.first_row = first_row
        self.row, self.block = chosen.unbind(1)
        self.got = got[self.row, self.block]  # [n, 16]
        self.got_scale = got_scales[self.row, self.block]  # [n]
        self.encode = encode
        self.bitwise = bitwise

    def fail(
        self, stage: str, bad: Tensor, expected: Tensor, got: Tensor, exact: Tensor, low: Tensor, high: Tensor
    ) -> None:
        index = bad.nonzero()
        if not len(index):
            return
        n, *feature = index[0].tolist()
        at = (n, *feature)
        column = int(self.block[n]) * GROUP + feature[0] if feature else int(self.block[n])
        bound = "exact" if exact[at] else f"{float(low[at]):.9g}..{float(high[at]):.9g} before rounding"
        raise Mismatch(stage, self.first_row + int(self.row[n]), column, int(expected[at]), int(got[at]), bound)

    def check(
        self,
        x: Tensor,
        w: Tensor,
        v: Tensor,
        codes: Tensor,
        scales: Tensor,
        constants: tuple[Tensor, ...],
        accumulation: Accumulation,
    ) -> None:
        feature = self.block[:, None] * GROUP + torch.arange(GROUP, device=x.device)  # [n, 16]
        nominal = v[self.row[:, None], feature]
        up, up_exact = self._sums(x, w[feature], accumulation)
        gate, gate_exact = self._sums(x, w[INTERMEDIATE + feature], accumulation)
        low, high = situ_interval(gate, up, *constants)
        exact = (up_exact & gate_exact) | nominal.isnan() | self.bitwise
        low, high = torch.where(exact, nominal.double(), low), torch.where(exact, nominal.double(), high)

        smallest, largest = magnitude_interval(low, high)
        sixth = self.encode.double() * reference.ONE_SIXTH
        ends = widen(smallest.amax(dim=1) * sixth, largest.amax(dim=1) * sixth, 2)
        all_exact = exact.all(dim=1)
        expected_scale = scales[self.row, self.block]
        cell = [end.to(x.device)[self.got_scale.long()] for end in e4m3_cells()]
        possible = (ends[1] >= cell[0]) & (ends[0] <= cell[1]) & (self.got_scale < E4M3_NAN)
        wrong = (self.got_scale != expected_scale) & (all_exact | ~possible)
        self.fail("fc1, scale", wrong, expected_scale, self.got_scale, all_exact, *ends)

        # Codes are judged under the scale that the backend chose.
        scale = self.got_scale[:, None]
        factor = torch.where(scale == 0, 0.0, self.encode / decode_e4m3(scale))
        expected = torch.where(scale == E4M3_NAN, 0, encode_e2m1(nominal * factor))
        scaled = widen(low * factor.double(), high * factor.double(), 1)
        cells = [end.to(x.device)[self.got.long()] for end in e2m1_cells()]
        possible = (scaled[1] >= cells[0]) & (scaled[0] <= cells[1])
        wrong = (self.got != expected) & (exact | ~possible)
        self.fail("fc1, code", wrong, expected, self.got, exact, *scaled)

    def _sums(self, x: Tensor, w: Tensor, accumulation: Accumulation) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Interval of the float32 sums [n, 16], and which of them are exact. w: [n, 16, K]."""
        terms = (x[self.row, None].double() * w.double()).flatten(0, 1)
        total = terms.sum(dim=1)
        exact = sum_is_exact(terms)
        error = torch.where(exact, 0.0, accumulation.sharp(terms))
        shape = (len(self.row), GROUP)
        return ((total - error).view(shape), (total + error).view(shape)), exact.view(shape)


def judge_y(
    first_row: int,
    differs: Tensor,
    h: Tensor,
    w: Tensor,
    alpha: Tensor,
    nominal: Tensor,
    got: Tensor,
    accumulation: Accumulation,
    bitwise: bool,
) -> None:
    for chosen in differs.nonzero().split(4096):
        row, column = chosen.unbind(1)
        terms = h[row].double() * w[column].double()
        total = terms.sum(dim=1) * alpha.double()
        error = accumulation.sharp(terms) * alpha.double().abs()
        low, high = widen(total - error, total + error, 1)
        lower, upper = bf16_cell(got[row, column])
        wrong = (high < lower) | (low > upper) | got[row, column].isnan() | sum_is_exact(terms) | bitwise
        if wrong.any():
            n = int(wrong.nonzero()[0])
            r, c = int(row[n]), int(column[n])
            expected = float(nominal[r, c].bfloat16())
            bound = f"{float(error[n]):.3g} around {float(total[n]):.9g}"
            raise Mismatch("fc2", first_row + r, c, expected, float(got[r, c]), bound)
