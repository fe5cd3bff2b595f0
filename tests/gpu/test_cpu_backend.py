"""The CPU backend's bits in every section, where sums are exact: a sample of a call's tokens computed by both."""

from __future__ import annotations

import pytest
import torch
from gpu_support.plans import DEVICE, has_kernels, plan_rows
from gpu_support.problems import problem_of
from torch import Tensor

from cake_moe.layout import TOP_K, dequantize_nvfp4
from cake_moe.testing.accumulate import CPU, accumulation_of
from cake_moe.testing.inputs import MoeInputs, make_inputs
from cake_moe.testing.routings import expert_pool
from cake_moe.testing.stages import Stages, run

pytestmark = pytest.mark.skipif(not has_kernels(), reason="needs a GPU that fused_moe has kernels for")

EDGES = sorted({count for row in plan_rows() for count in (row.first, row.last)})
SAMPLE = 48


def sample_of(num_tokens: int) -> Tensor:
    """The first and the last token, and others spread between."""
    return torch.linspace(0, num_tokens - 1, min(num_tokens, SAMPLE)).round().long()


def on_the_cpu(problem: MoeInputs, tokens: Tensor) -> MoeInputs:
    """Those tokens of a problem whose weights are the CPU's `integer` ones, too."""
    same_weights = make_inputs(1, routing="balanced", kind="integer", experts=expert_pool(16), seed=11)
    there = tokens.to(DEVICE)
    few = problem.take(there)
    return MoeInputs(
        few.input.cpu(),
        few.token_selected_experts.cpu(),
        few.token_final_scales.cpu(),
        same_weights.fc1_expert_weights,
        same_weights.fc2_expert_weights,
        [
            same_weights.quant_scales[i] if scale.dtype == torch.uint8 else scale.cpu()
            for i, scale in enumerate(few.quant_scales)
        ],
        None if few.situ_beta is None else few.situ_beta.cpu(),
        None if few.situ_linear_beta is None else few.situ_linear_beta.cpu(),
    )


def require_close_y(problem: MoeInputs, got: Tensor, expected: Tensor, hidden: Tensor, alpha: Tensor) -> Tensor:
    """y of the same hq and hs by two backends: bool [rows, H], the elements that differ.

    FC2's sums may round. Each backend's is within its bound of the exact one, a multiple of sum|h_k * w_k| <= 12 *
    sum|h_k| (e2m1 is at most 6, unit block scales at most 2); then both round to bfloat16.
    """
    one = torch.tensor(1.0)
    relative = accumulation_of(problem.num_tokens, DEVICE).coarse(one, 384) + CPU.coarse(one, 384)
    differs = got.view(torch.int16) != expected.view(torch.int16)
    bound = (relative * 12 * hidden.abs().sum(dim=1) * alpha)[:, None]
    a, b = got.float(), expected.float()
    assert bool((~differs | ((a - b).abs() <= bound + 2.0**-8 * (a.abs() + b.abs()))).all()), "y: outside its bound"
    assert int(differs.sum()) <= 1e-3 * differs.numel()
    return differs


def rows_of(stages: Stages, tokens: Tensor) -> Tensor:
    """Rows of the tokens' routes, int64 [n * 16]; -1 and -2 where there is none."""
    return stages.route_row[tokens.to(stages.route_row.device)].view(-1).long().cpu()


@pytest.mark.parametrize(
    ("num_tokens", "routing"),
    [*((count, "uniform") for count in EDGES), *((row.first, "out_of_range") for row in plan_rows())],
)
def test_bits_of_the_cpu_backend(num_tokens: int, routing: str) -> None:
    problem = problem_of(num_tokens, routing, "integer")
    tokens = sample_of(num_tokens)
    output, stages = run(problem)
    few = on_the_cpu(problem, tokens)
    expected_output, expected = run(few)

    for name in ("xq", "xs"):
        assert torch.equal(getattr(stages, name)[tokens.to(DEVICE)].cpu(), getattr(expected, name)), name
    got_rows, expected_rows = rows_of(stages, tokens), rows_of(expected, torch.arange(len(tokens)))
    routed = expected_rows >= 0
    assert torch.equal(got_rows[~routed], expected_rows[~routed])
    got_rows, expected_rows = got_rows[routed], expected_rows[routed]
    routes = (tokens[:, None] * TOP_K + torch.arange(TOP_K)).view(-1)[routed]
    assert torch.equal(stages.row_route[got_rows.to(DEVICE)].cpu().long(), routes)

    got = {name: getattr(stages, name)[got_rows.to(DEVICE)].cpu() for name in ("hq", "hs", "y")}
    wanted = {name: getattr(expected, name)[expected_rows] for name in ("hq", "hs", "y")}
    assert torch.equal(got["hs"], wanted["hs"])
    assert torch.equal(got["hq"], wanted["hq"])
    experts = few.token_selected_experts.view(-1)[routed].long()
    hidden = dequantize_nvfp4(wanted["hq"], wanted["hs"])
    differs = require_close_y(problem, got["y"], wanted["y"], hidden, few.quant_scales[5][experts])
    print(f"M={num_tokens}, {routing}: {len(got_rows)} rows, y differs in {int(differs.sum())} of {differs.numel()}")

    reached = torch.zeros(len(tokens), differs.shape[1], dtype=torch.int64)
    slot = torch.arange(len(tokens)).repeat_interleave(TOP_K)[routed]
    reached.index_add_(0, slot, differs.long())
    same = output[tokens.to(DEVICE)].cpu().view(torch.int16) == expected_output.view(torch.int16)
    assert bool((same | (reached > 0)).all())
