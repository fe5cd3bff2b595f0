"""Checks a backend's call stage by stage, each from the stage's own dumped input, and the whole call by row.

Nothing here has a tolerance. Quantisation, route tables and finalisation are one sequence of roundings, so their bits
must be right. A GEMM's sum depends on the order of its additions: an element whose bits differ from those of the exact
sum must not be one that every order sums exactly, its code must be one that rounding may give within the backend's
derived error bound (`accumulate`, `bounds`), and such elements may be at most 1e-3 of a stage.

All evaluation is on the CPU, expert by expert in float64 (a sum of NVFP4 products has at most 55 significant bits),
with memory for the output twice in float64 and a few tens of MB. M = 4096 takes about half a minute on two cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cake_moe import reference
from cake_moe._native import _C
from cake_moe.layout import (
    E4M3_NAN,
    EXPERTS,
    GROUP,
    HIDDEN,
    INTERMEDIATE,
    TOP_K,
    decode_e4m3,
    dequantize_nvfp4,
    encode_e2m1,
    unpack_nibbles,
)
from cake_moe.testing.accumulate import CPU, UNIT, Accumulation, LaneSum, sum_is_exact
from cake_moe.testing.bounds import SMALLEST, magnitude_interval, situ_interval, widen
from cake_moe.testing.inputs import MoeInputs
from cake_moe.testing.rounding import bf16_bits, bf16_cell, e2m1_cells, e4m3_cells, fma_float32
from cake_moe.testing.stages import Stages

BF16_UNIT = 2.0**-8  # unit roundoff of bfloat16, round to nearest
MAX_DIFFERING = 1e-3  # of the elements of a stage
_ROWS = 512  # rows evaluated at a time
_BLOCKS = 32  # differing blocks judged at a time: 32 * 16 features * 2 sums * 3584 terms


class Mismatch(AssertionError):
    """One element that no correct backend can give.

    stage; row (token, or row of the route tables) and column; expected and got (codes or values as text); bound: what
    was allowed.
    """

    def __init__(
        self, stage: str, row: int, column: int, expected: object, got: object, bound: object = "exact"
    ) -> None:
        super().__init__(f"{stage}: row {row}, column {column}: expected {expected}, got {got}, bound {bound}")
        self.stage, self.row, self.column = stage, row, column
        self.expected, self.got, self.bound = expected, got, bound


class TooManyDiffer(AssertionError):
    """Every differing element of a stage is within its bound, but there are more of them than MAX_DIFFERING."""


@dataclass
class StageReport:
    """elements compared; differing from the bits of the exact sum, each within its bound."""

    stage: str
    elements: int = 0
    differing: int = 0

    def finish(self) -> StageReport:
        if self.differing > MAX_DIFFERING * self.elements:
            raise TooManyDiffer(
                f"{self.stage}: {self.differing} of {self.elements} elements differ from the exactly summed ones, "
                f"more than {MAX_DIFFERING:g} of them"
            )
        return self


@dataclass
class Report:
    """What `compare` found. row_error: the largest relative error of an output row; row_bound: that row's bound."""

    stages: dict[str, StageReport] = field(default_factory=dict)
    row_error: float = 0.0
    row_bound: float = 0.0
    nan_rows: int = 0

    def __str__(self) -> str:
        stages = ", ".join(f"{s.stage} {s.differing}/{s.elements}" for s in self.stages.values())
        row = f"max row error {self.row_error:.2e} (bound {self.row_bound:.2e})"
        return f"differing: {stages}; {row}; NaN rows {self.nan_rows}"


def compare(
    problem: MoeInputs, output: Tensor, stages: Stages, accumulation: Accumulation = CPU, *, bitwise: bool = False
) -> Report:
    """Every check of this module. Raises Mismatch or TooManyDiffer.

    output: bf16 [M, H]; stages: the dump of the same call; accumulation: how the backend sums.
    bitwise: emulate the sums of `accumulation` (a LaneSum) and accept no differing bit; slower by M * 16 * 448 * 768
    float32 additions.
    """
    emulated = accumulation if bitwise else None
    if emulated is not None and not isinstance(emulated, LaneSum):
        raise TypeError(f"compare: bitwise needs a LaneSum, got {type(accumulation).__name__}")
    report = Report()
    check_quantize(problem, stages)
    check_routes(problem, stages)
    report.stages["fc1"] = check_fc1(problem, stages, accumulation, emulated)
    report.stages["fc2"], exact, bound = check_fc2(problem, stages, accumulation, emulated)
    check_finalize(problem, output, stages)
    report.row_error, report.row_bound, report.nan_rows = check_rows(output, exact, bound)
    return report


def _require_equal(stage: str, got: Tensor, expected: Tensor) -> None:
    """Equality of integer matrices [rows, columns]."""
    if torch.equal(got, expected):
        return
    row, column = (got != expected).nonzero()[0].tolist()
    raise Mismatch(stage, row, column, expected[row, column].item(), got[row, column].item())


def check_quantize(problem: MoeInputs, stages: Stages) -> None:
    """xq and xs, bit for bit, from the call's input."""
    for start in range(0, problem.num_tokens, _ROWS):
        part = slice(start, start + _ROWS)
        packed, scales = reference.quantize_input(problem.input[part], problem.quant_scales[0])
        try:
            _require_equal("quantize, scale", stages.xs[part], scales)
            _require_equal("quantize, byte", stages.xq[part], packed)
        except Mismatch as error:
            raise Mismatch(error.stage, start + error.row, error.column, error.expected, error.got) from None


def check_routes(problem: MoeInputs, stages: Stages) -> None:
    """The route tables: the same routes for each expert, in any order, and both tables inverse to each other."""
    ids = problem.token_selected_experts
    expected = reference.route(ids)
    _require_equal("route, expert_offsets", stages.expert_offsets[None], expected.expert_offsets[None])
    rows = len(expected.row_route)
    got = stages.row_route[:rows].long()
    outside = ((got < 0) | (got >= ids.numel())).nonzero()
    if len(outside):
        row = int(outside[0])
        raise Mismatch("route, row_route", row, 0, f"a route in 0..{ids.numel() - 1}", int(got[row]))
    _require_equal("route, expert of row", ids.view(-1)[got][:, None].int(), expected.row_expert[:, None].int())
    inverse = torch.where(expected.route_row < 0, expected.route_row, 0).view(-1)
    inverse[got] = torch.arange(rows, dtype=torch.int32)
    _require_equal("route, route_row", stages.route_row, inverse.view(ids.shape))
    back = stages.route_row.view(-1)[got]
    _require_equal("route, row_route", back[:, None], torch.arange(rows, dtype=torch.int32)[:, None])


def _expert_rows(stages: Stages) -> Iterator[tuple[int, list[slice]]]:
    """Experts with rows, and their rows in parts of at most _ROWS."""
    offsets = stages.expert_offsets.tolist()
    for expert in range(EXPERTS):
        first, end = offsets[expert], offsets[expert + 1]
        if first < end:
            yield expert, [slice(start, min(start + _ROWS, end)) for start in range(first, end, _ROWS)]


def situ_float32(gate: Tensor, up: Tensor, a: Tensor, b: Tensor, l: Tensor) -> Tensor:  # noqa: E741
    """The float32 SiTU that every backend must give, from src/numerics/situ.h; a, b and l have one element."""
    scalars = (float(a), float(b), float(l))
    return torch.from_numpy(_C.numerics.situ(gate.contiguous().numpy(), up.contiguous().numpy(), *scalars))


def check_fc1(
    problem: MoeInputs, stages: Stages, accumulation: Accumulation = CPU, emulated: LaneSum | None = None
) -> StageReport:
    """hq and hs from xq, xs and the route tables. `emulated`: sum as it does and accept no difference."""
    report = StageReport("fc1")
    _, scales, alphas, encodes, _, _ = problem.quant_scales
    betas, linear_betas = problem.betas
    dtype = torch.float64 if emulated is None else torch.float32
    for expert, parts in _expert_rows(stages):
        w = reference.fc1_expert(problem.fc1_expert_weights, scales, expert, "prepared", dtype)
        constants = (alphas[expert], betas[expert], linear_betas[expert])
        encode = encodes[expert]
        for rows in parts:
            tokens = stages.row_route[rows].long() // TOP_K
            x = dequantize_nvfp4(stages.xq[tokens], stages.xs[tokens], dtype=dtype)
            sums = emulated.emulate(x, w) if emulated is not None else (x @ w.T).float()
            up, gate = sums.chunk(2, dim=1)
            v = situ_float32(gate, up, *constants)
            packed, block_scales = reference.requantize(v, encode.expand(len(v)))
            report.elements += v.numel()
            got_packed, got_scales = stages.hq[rows], stages.hs[rows]
            if torch.equal(packed, got_packed) and torch.equal(block_scales, got_scales):
                continue
            codes, got = (unpack_nibbles(part).view(len(v), -1, GROUP) for part in (packed, got_packed))
            differs = (codes != got) | (block_scales != got_scales)[:, :, None]
            where = differs.any(dim=2).nonzero()
            for chosen in where.split(_BLOCKS):
                judge = _BlockJudge(rows.start, chosen, got, got_scales, encode, emulated is not None)
                judge.check(x, w, v, codes, block_scales, constants, accumulation)
            report.differing += int(differs.sum())
    return report.finish()


class _BlockJudge:
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
        constants: tuple[Tensor, Tensor, Tensor],
        accumulation: Accumulation,
    ) -> None:
        feature = self.block[:, None] * GROUP + torch.arange(GROUP)  # [n, 16]
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
        cell = [end[self.got_scale.long()] for end in e4m3_cells()]
        possible = (ends[1] >= cell[0]) & (ends[0] <= cell[1]) & (self.got_scale < E4M3_NAN)
        wrong = (self.got_scale != expected_scale) & (all_exact | ~possible)
        self.fail("fc1, scale", wrong, expected_scale, self.got_scale, all_exact, *ends)

        # Codes are judged under the scale that the backend chose.
        scale = self.got_scale[:, None]
        factor = torch.where(scale == 0, 0.0, self.encode / decode_e4m3(scale))
        expected = torch.where(scale == E4M3_NAN, 0, encode_e2m1(nominal * factor))
        scaled = widen(low * factor.double(), high * factor.double(), 1)
        cells = [end[self.got.long()] for end in e2m1_cells()]
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


def check_fc2(
    problem: MoeInputs, stages: Stages, accumulation: Accumulation = CPU, emulated: LaneSum | None = None
) -> tuple[StageReport, Tensor, Tensor]:
    """y from hq, hs and the route tables; also the exact output and its error bound for `check_rows`.

    Returns (report, exact, bound): float64 [M, H]; exact = sum_k weight[k] * alpha * (exact FC2 sum of slot k), NaN for
    a token with an invalid id; bound on |float32 sum - exact| before the last rounding, from: the accumulation; one
    rounding of acc * alpha (u); the rounding of y to bfloat16 (2^-8, and 2^-134 below the normal range); at most 16
    rounded FMAs (16u, and 2^-150 each below the normal range). A factor of 1 + 2^-8 covers their products.
    """
    report = StageReport("fc2")
    exact = torch.zeros(problem.num_tokens, HIDDEN, dtype=torch.float64)
    bound = torch.full_like(exact, TOP_K * SMALLEST)
    scales, alphas = problem.quant_scales[4:]
    weights = problem.token_final_scales.view(-1).double()
    relative = BF16_UNIT + 18 * UNIT
    for expert, parts in _expert_rows(stages):
        w = reference.fc2_expert(problem.fc2_expert_weights, scales, expert, "prepared", torch.float64)
        w_norm = w.norm(dim=1)
        alpha = alphas[expert]
        for rows in parts:
            h = dequantize_nvfp4(stages.hq[rows], stages.hs[rows], dtype=torch.float64)
            sums = h @ w.T
            nominal = (emulated.emulate(h.float(), w.float()) if emulated is not None else sums.float()) * alpha
            got = stages.y[rows]
            differs = bf16_bits(nominal) != got.view(torch.int16)
            report.elements += got.numel()
            count = int(differs.sum())
            if count:
                report.differing += count
                _judge_y(rows.start, differs, h, w, alpha, nominal, got, accumulation, emulated is not None)
            # sum|h_k * w_k| <= |h| * |w| (Cauchy and Schwarz); the norms' own rounding is far below `coarse`'s slack.
            error = accumulation.coarse(h.norm(dim=1)[:, None] * w_norm, INTERMEDIATE)
            route = stages.row_route[rows].long()
            weight = weights[route, None]
            sums *= alpha.double()
            error.mul_(alpha.double().abs()).add_(sums.abs(), alpha=relative).add_(2.0**-134)
            exact.index_add_(0, route // TOP_K, sums.mul_(weight))
            bound.index_add_(0, route // TOP_K, error.mul_(weight.abs() * (1 + 2.0**-8)))
    exact[(stages.route_row == reference.INVALID_ROUTE).any(dim=1)] = torch.nan
    return report.finish(), exact, bound


def _judge_y(
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


def check_finalize(problem: MoeInputs, output: Tensor, stages: Stages) -> None:
    """The output, bit for bit, from y and the route tables."""
    weights = problem.token_final_scales.float()
    for start in range(0, problem.num_tokens, 64):
        part = slice(start, start + 64)
        route_row = stages.route_row[part].long()
        total = torch.zeros(len(route_row), HIDDEN, dtype=torch.float32)
        for slot in range(TOP_K):
            tokens = (route_row[:, slot] >= 0).nonzero().squeeze(1)
            y = stages.y[route_row[tokens, slot]].float()
            total[tokens] = fma_float32(weights[part][tokens, slot, None].expand_as(y), y, total[tokens])
        total[(route_row == reference.INVALID_ROUTE).any(dim=1)] = torch.nan
        expected, got = bf16_bits(total), output[part].view(torch.int16)
        if not torch.equal(expected, got):
            row, column = (expected != got).nonzero()[0].tolist()
            value = float(total[row, column].bfloat16())
            raise Mismatch("finalize", start + row, column, value, float(output[start + row, column]))


def check_rows(output: Tensor, exact: Tensor, bound: Tensor) -> tuple[float, float, int]:
    """The output against its float64 evaluation: every element within its bound, NaN exactly where it is expected.

    Returns the largest relative row error |output - exact| / |exact| (2-norms), the bound on that row's, and the number
    of NaN rows.
    """
    worst, worst_bound, nan_rows = 0.0, 0.0, 0
    for start in range(0, len(output), _ROWS):
        part = slice(start, start + _ROWS)
        got, value, allowed = output[part], exact[part], bound[part]
        lower, upper = bf16_cell(got)
        wrong = (value + allowed < lower) | (value - allowed > upper) | (got.isnan() != value.isnan())
        if wrong.any():
            row, column = wrong.nonzero()[0].tolist()
            at = (row, column)
            raise Mismatch("rows", start + row, column, float(value[at]), float(got[at]), f"{float(allowed[at]):.3g}")
        nan_rows += int(got.isnan().all(dim=1).sum())
        difference = got.double() - value
        total = allowed + BF16_UNIT * (value.abs() + allowed) + 2.0**-134
        size = value.norm(dim=1)
        usable = difference.isfinite().all(dim=1) & (size > 0)
        if usable.any():
            errors = difference[usable].norm(dim=1) / size[usable]
            row = int(errors.argmax())
            if float(errors[row]) > worst:
                worst = float(errors[row])
                worst_bound = float(total[usable][row].norm() / size[usable][row])
    return worst, worst_bound, nan_rows
