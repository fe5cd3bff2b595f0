"""The CPU backend's bits in every section, where sums are exact: a sample of a call's tokens computed by both."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cake_moe.layout import INTERMEDIATE, TOP_K, dequantize_nvfp4
from cake_moe.testing import stages
from cake_moe.testing.accumulate import CPU, accumulation_of
from cake_moe.testing.inputs import MoeInputs, shared_weights
from cake_moe.testing.stages import Stages
from cake_moe.testing.verdict import MAX_DIFFERING

SAMPLE = 48


class Compared(NamedTuple):
    """rows compared; elements of y among them, and how many differ, each within both backends' bounds."""

    rows: int
    elements: int
    differing: int


def sample_of(num_tokens: int, size: int = SAMPLE) -> Tensor:
    """The first and the last token, and others spread between."""
    return torch.linspace(0, num_tokens - 1, min(num_tokens, size)).round().long()


def on_the_cpu(problem: MoeInputs, tokens: Tensor) -> MoeInputs:
    """Those tokens of a problem of kind `integer`, whose weights are copies of the shared ones."""
    weights = shared_weights("unit")
    few = problem.take(tokens.to(problem.input.device))
    scales = [scale.cpu() if scale.dtype != torch.uint8 else scale for scale in few.quant_scales]
    scales[1], scales[4] = weights.fc1_scales, weights.fc2_scales
    few = MoeInputs(
        few.input.cpu(),
        few.token_selected_experts.cpu(),
        few.token_final_scales.cpu(),
        weights.fc1,
        weights.fc2,
        scales,
        None if few.situ_beta is None else few.situ_beta.cpu(),
        None if few.situ_linear_beta is None else few.situ_linear_beta.cpu(),
    )
    weights.touch(few.active_experts)
    return few


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise AssertionError(f"bits of the CPU backend: {what}")


def _differing_y(problem: MoeInputs, got: Tensor, expected: Tensor, hidden: Tensor, alpha: Tensor) -> Tensor:
    """y of the same hq and hs by two backends: bool [rows, H], the elements that differ.

    FC2's sums may round. Each backend's is within its bound of the exact one, a multiple of sum|h_k * w_k| <= 12 *
    sum|h_k| (e2m1 is at most 6, unit block scales at most 2); then both round to bfloat16.
    """
    one = torch.tensor(1.0)
    backend = accumulation_of(problem.num_tokens, problem.input.device)
    relative = backend.coarse(one, INTERMEDIATE) + CPU.coarse(one, INTERMEDIATE)
    differs = got.view(torch.int16) != expected.view(torch.int16)
    bound = (relative * 12 * hidden.abs().sum(dim=1) * alpha)[:, None]
    a, b = got.float(), expected.float()
    _require(bool((~differs | ((a - b).abs() <= bound + 2.0**-8 * (a.abs() + b.abs()))).all()), "y outside its bound")
    _require(int(differs.sum()) <= MAX_DIFFERING * differs.numel(), "too many elements of y differ")
    return differs


def _rows_of(dump: Stages, tokens: Tensor) -> Tensor:
    """Rows of the tokens' routes, int64 [n * 16]; -1 and -2 where there is none."""
    return dump.route_row[tokens.to(dump.route_row.device)].view(-1).long().cpu()


def check_cpu_bits(problem: MoeInputs, size: int = SAMPLE) -> Compared:
    """One call on poisoned memory; `size` of its tokens once more on the CPU. problem: of kind `integer`."""
    tokens = sample_of(problem.num_tokens, size)
    there = tokens.to(problem.input.device)
    output, dump = stages.run(problem)
    few = on_the_cpu(problem, tokens)
    expected_output, expected = stages.run(few)

    for name in ("xq", "xs"):
        _require(torch.equal(getattr(dump, name)[there].cpu(), getattr(expected, name)), name)
    got_rows, expected_rows = _rows_of(dump, tokens), _rows_of(expected, torch.arange(len(tokens)))
    routed = expected_rows >= 0
    _require(torch.equal(got_rows[~routed], expected_rows[~routed]), "slots without a route")
    got_rows, expected_rows = got_rows[routed], expected_rows[routed]
    routes = (tokens[:, None] * TOP_K + torch.arange(TOP_K)).view(-1)[routed]
    in_rows = got_rows.to(there.device)
    _require(torch.equal(dump.row_route[in_rows].cpu().long(), routes), "row_route")

    got = {name: getattr(dump, name)[in_rows].cpu() for name in ("hq", "hs", "y")}
    wanted = {name: getattr(expected, name)[expected_rows] for name in ("hq", "hs", "y")}
    for name in ("hs", "hq"):
        _require(torch.equal(got[name], wanted[name]), name)
    experts = few.token_selected_experts.view(-1)[routed].long()
    hidden = dequantize_nvfp4(wanted["hq"], wanted["hs"])
    differs = _differing_y(problem, got["y"], wanted["y"], hidden, few.quant_scales[5][experts])

    reached = torch.zeros(len(tokens), differs.shape[1], dtype=torch.int64)
    slot = torch.arange(len(tokens)).repeat_interleave(TOP_K)[routed]
    reached.index_add_(0, slot, differs.long())
    same = output[there].cpu().view(torch.int16) == expected_output.view(torch.int16)
    _require(bool((same | (reached > 0)).all()), "output")
    return Compared(len(got_rows), differs.numel(), int(differs.sum()))
