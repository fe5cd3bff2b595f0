"""Checks a backend's call stage by stage, each from the stage's own dumped input, and the whole call by row.

Nothing here has a tolerance. Quantisation, route tables and finalisation are one sequence of roundings, so their bits
must be right. A GEMM's sum depends on the order of its additions: an element whose bits differ from those of the exact
sum must not be one that every order sums exactly, its code must be one that rounding may give within the backend's
derived error bound (`accumulate`, `bounds`, `judge`), and such elements may be at most 1e-3 of a stage.

Evaluation is in float64 (a sum of NVFP4 products has at most 55 significant bits) on the device of the dump: problem,
output and stages must be on one device. Memory: the output twice in float64 and, on the CPU, a few tens of MB; on a GPU
a few GB, and the experts' dequantised weights are kept in fp16 as long as the weights live. M = 4096 takes about half a
minute on two cores and a fifth of a second on an H200.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from cake_moe import reference
from cake_moe._native import _C
from cake_moe.layout import (
    EXPERTS,
    GROUP,
    HIDDEN,
    INTERMEDIATE,
    TOP_K,
    dequantize_nvfp4,
    unpack_nibbles,
)
from cake_moe.testing.accumulate import CPU, UNIT, Accumulation, LaneSum
from cake_moe.testing.bounds import SMALLEST
from cake_moe.testing.inputs import MoeInputs
from cake_moe.testing.judge import BlockJudge, judge_y
from cake_moe.testing.rounding import bf16_bits, bf16_cell, fma_float32
from cake_moe.testing.stages import Stages
from cake_moe.testing.verdict import MAX_DIFFERING, Mismatch, Report, StageReport, TooManyDiffer

__all__ = [
    "MAX_DIFFERING",
    "Mismatch",
    "Report",
    "StageReport",
    "TooManyDiffer",
    "check_fc1",
    "check_fc2",
    "check_finalize",
    "check_quantize",
    "check_routes",
    "check_rows",
    "compare",
    "situ_float32",
]

BF16_UNIT = 2.0**-8  # unit roundoff of bfloat16, round to nearest


class _Limits(NamedTuple):
    """What is evaluated at a time: rows; differing blocks (16 features * 2 sums * 3584 terms each); tokens."""

    rows: int
    blocks: int
    tokens: int


def _limits(device: torch.device) -> _Limits:
    return _Limits(512, 32, 64) if device.type == "cpu" else _Limits(16384, 512, 4096)


SituFloat32 = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""float32 gate and up [n, 384]; alpha, beta and linear beta of each row [n] -> float32 [n, 384], bit for bit."""


def compare(
    problem: MoeInputs,
    output: Tensor,
    stages: Stages,
    accumulation: Accumulation = CPU,
    *,
    bitwise: bool = False,
    situ: SituFloat32 | None = None,
) -> Report:
    """Every check of this module. Raises Mismatch or TooManyDiffer.

    output: bf16 [M, H]; stages: the dump of the same call; accumulation: how the backend sums.
    bitwise: emulate the sums of `accumulation` (a LaneSum) and accept no differing bit; slower by M * 16 * 448 * 768
    float32 additions.
    situ: the float32 SiTU of src/numerics/situ.h where something faster than `situ_float32` is at hand.
    """
    emulated = accumulation if bitwise else None
    if emulated is not None and not isinstance(emulated, LaneSum):
        raise TypeError(f"compare: bitwise needs a LaneSum, got {type(accumulation).__name__}")
    report = Report()
    check_quantize(problem, stages)
    check_routes(problem, stages)
    report.stages["fc1"] = check_fc1(problem, stages, accumulation, emulated, situ)
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
    rows = _limits(stages.xq.device).rows
    for start in range(0, problem.num_tokens, rows):
        part = slice(start, start + rows)
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
    all_rows = torch.arange(rows, dtype=torch.int32, device=ids.device)
    inverse[got] = all_rows
    _require_equal("route, route_row", stages.route_row, inverse.view(ids.shape))
    back = stages.route_row.view(-1)[got]
    _require_equal("route, row_route", back[:, None], all_rows[:, None])


class _Part(NamedTuple):
    """Rows that are evaluated together: consecutive experts, each with its rows counted from the part's first."""

    rows: slice
    experts: list[tuple[int, slice]]

    def expert_of_row(self, device: torch.device) -> Tensor:
        """int64 [rows]."""
        counts = torch.tensor([rows.stop - rows.start for _, rows in self.experts])
        return torch.repeat_interleave(torch.tensor([expert for expert, _ in self.experts]), counts).to(device)


def _parts(stages: Stages) -> Iterator[_Part]:
    """All rows, in parts of at most `_limits().rows`."""
    limit = _limits(stages.xq.device).rows
    offsets = stages.expert_offsets.tolist()
    first, experts = 0, []
    for expert in range(EXPERTS):
        row, end = offsets[expert], offsets[expert + 1]
        while row < end:
            stop = min(end, first + limit)
            experts.append((expert, slice(row - first, stop - first)))
            row = stop
            if row - first == limit:
                yield _Part(slice(first, row), experts)
                first, experts = row, []
    if experts:
        yield _Part(slice(first, offsets[EXPERTS]), experts)


_ExpertWeights = Callable[[Tensor, Tensor, int, reference.Layout, torch.dtype], Tensor]
# fp16 [N, K] by expert, of weights on a GPU: e2m1 * e4m3 is exact in fp16.
_DEQUANTISED: MutableMapping[Tensor, dict[int, Tensor]] = WeakTensorKeyDictionary()


def _dequantised(
    evaluate: _ExpertWeights, weights: Tensor, scales: Tensor, expert: int, dtype: torch.dtype = torch.float64
) -> Tensor:
    """[N, K] in dtype. The bytes of an expert that was touched never change, so a GPU keeps what it evaluated."""
    if not weights.is_cuda:
        return evaluate(weights, scales, expert, "prepared", dtype)
    known = _DEQUANTISED.setdefault(weights, {})
    if expert not in known:
        known[expert] = evaluate(weights, scales, expert, "prepared", torch.float32).half()
    return known[expert].to(dtype)


def situ_float32(gate: Tensor, up: Tensor, a: Tensor, b: Tensor, l: Tensor) -> Tensor:  # noqa: E741
    """The float32 SiTU that every backend must give, from src/numerics/situ.h; a, b and l have one element."""
    scalars = (float(a), float(b), float(l))
    values = _C.numerics.situ(gate.cpu().contiguous().numpy(), up.cpu().contiguous().numpy(), *scalars)
    return torch.from_numpy(values).to(gate.device)


def check_fc1(
    problem: MoeInputs,
    stages: Stages,
    accumulation: Accumulation = CPU,
    emulated: LaneSum | None = None,
    situ: SituFloat32 | None = None,
) -> StageReport:
    """hq and hs from xq, xs and the route tables. `emulated`: sum as it does and accept no difference."""
    report = StageReport("fc1")
    device = stages.xq.device
    _, scales, alphas, encodes, _, _ = problem.quant_scales
    constants = (alphas, *problem.betas)
    dtype = torch.float64 if emulated is None else torch.float32

    def weights(expert: int) -> Tensor:
        return _dequantised(reference.fc1_expert, problem.fc1_expert_weights, scales, expert, dtype)

    for part in _parts(stages):
        experts = part.expert_of_row(device)
        tokens = stages.row_route[part.rows].long() // TOP_K
        x = dequantize_nvfp4(stages.xq[tokens], stages.xs[tokens], dtype=dtype)
        sums = torch.empty(len(x), 2 * INTERMEDIATE, dtype=torch.float32, device=device)
        for expert, rows in part.experts:
            w = weights(expert)
            sums[rows] = emulated.emulate(x[rows], w) if emulated is not None else (x[rows] @ w.T).float()
        up, gate = sums.chunk(2, dim=1)
        if situ is None:
            pieces = [situ_float32(gate[r], up[r], *(c[e] for c in constants)) for e, r in part.experts]
            v = torch.cat(pieces)
        else:
            v = situ(gate, up, *(c[experts] for c in constants))
        packed, block_scales = reference.requantize(v, encodes[experts])
        report.elements += v.numel()
        got_packed, got_scales = stages.hq[part.rows], stages.hs[part.rows]
        if torch.equal(packed, got_packed) and torch.equal(block_scales, got_scales):
            continue
        codes, got = (unpack_nibbles(bytes_).view(len(v), -1, GROUP) for bytes_ in (packed, got_packed))
        differs = (codes != got) | (block_scales != got_scales)[:, :, None]
        report.differing += int(differs.sum())
        differing_blocks = differs.any(dim=2)
        for expert, rows in part.experts:
            where = differing_blocks[rows].nonzero()
            for chosen in where.split(_limits(device).blocks) if len(where) else ():
                first_row = part.rows.start + rows.start
                judge = BlockJudge(
                    first_row, chosen, got[rows], got_scales[rows], encodes[expert], emulated is not None
                )
                of_expert = tuple(c[expert] for c in constants)
                judge.check(x[rows], weights(expert), v[rows], codes[rows], block_scales[rows], of_expert, accumulation)
    return report.finish()


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
    device = stages.xq.device
    exact = torch.zeros(problem.num_tokens, HIDDEN, dtype=torch.float64, device=device)
    bound = torch.full_like(exact, TOP_K * SMALLEST)
    scales, alphas = problem.quant_scales[4:]
    slot_weights = problem.token_final_scales.view(-1).double()
    relative = BF16_UNIT + 18 * UNIT

    def weights(expert: int) -> Tensor:
        return _dequantised(reference.fc2_expert, problem.fc2_expert_weights, scales, expert)

    for part in _parts(stages):
        h = dequantize_nvfp4(stages.hq[part.rows], stages.hs[part.rows], dtype=torch.float64)
        sums = torch.empty(len(h), HIDDEN, dtype=torch.float64, device=device)
        error = torch.empty_like(sums)
        nominal = torch.empty_like(sums, dtype=torch.float32)
        for expert, rows in part.experts:
            w = weights(expert)
            torch.matmul(h[rows], w.T, out=sums[rows])
            error[rows] = w.norm(dim=1)
            if emulated is not None:
                nominal[rows] = emulated.emulate(h[rows].float(), w.float())
        if emulated is None:
            nominal.copy_(sums)
        alpha = alphas[part.expert_of_row(device)][:, None]
        nominal *= alpha
        got = stages.y[part.rows]
        differs = bf16_bits(nominal) != got.view(torch.int16)
        report.elements += got.numel()
        count = int(differs.sum())
        report.differing += count
        for expert, r in part.experts if count else ():
            if differs[r].any():
                first = part.rows.start + r.start
                operands = (h[r], weights(expert), alphas[expert], nominal[r], got[r])
                judge_y(first, differs[r], *operands, accumulation, emulated is not None)
        # sum|h_k * w_k| <= |h| * |w| (Cauchy and Schwarz); the norms' own rounding is far below `coarse`'s slack.
        error = accumulation.coarse(error.mul_(h.norm(dim=1)[:, None]), INTERMEDIATE)
        route = stages.row_route[part.rows].long()
        weight = slot_weights[route, None]
        sums *= alpha.double()
        error.mul_(alpha.double().abs()).add_(sums.abs(), alpha=relative).add_(2.0**-134)
        exact.index_add_(0, route // TOP_K, sums.mul_(weight))
        bound.index_add_(0, route // TOP_K, error.mul_(weight.abs() * (1 + 2.0**-8)))
    exact[(stages.route_row == reference.INVALID_ROUTE).any(dim=1)] = torch.nan
    return report.finish(), exact, bound


def check_finalize(problem: MoeInputs, output: Tensor, stages: Stages) -> None:
    """The output, bit for bit, from y and the route tables."""
    weights = problem.token_final_scales.float()
    together = _limits(output.device).tokens
    for start in range(0, problem.num_tokens, together):
        part = slice(start, start + together)
        route_row = stages.route_row[part].long()
        total = torch.zeros(len(route_row), HIDDEN, dtype=torch.float32, device=output.device)
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
    together = _limits(output.device).rows
    for start in range(0, len(output), together):
        part = slice(start, start + together)
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
