"""Some tokens of a call are judged as if they had been the whole call."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from cake_moe.bench.sampled import compare_sample, sample_tokens, take_stages
from cake_moe.testing import stages
from cake_moe.testing.accumulate import CPU
from cake_moe.testing.compare import Mismatch
from cake_moe.testing.inputs import MoeInputs, make_inputs
from cake_moe.testing.routings import expert_pool

TOKENS = torch.tensor([0, 4, 8])


@pytest.mark.parametrize(("num_tokens", "count"), [(1, 4), (2, 4), (4, 4), (5, 4), (1000, 16)])
def test_sample_has_both_ends(num_tokens: int, count: int) -> None:
    tokens = sample_tokens(num_tokens, count, seed=1)
    assert len(tokens.unique()) == len(tokens) == min(num_tokens, count)
    assert torch.equal(tokens, tokens.sort().values)
    assert (int(tokens[0]), int(tokens[-1])) == (0, num_tokens - 1)


@pytest.fixture(scope="module", params=["zipf", "out_of_range"])
def call(request: pytest.FixtureRequest) -> tuple[MoeInputs, Tensor, stages.Stages]:
    problem = make_inputs(9, routing=request.param, experts=expert_pool(20), seed=4)
    return problem, *stages.run(problem)


def test_a_right_call_passes(call: tuple[MoeInputs, Tensor, stages.Stages]) -> None:
    report = compare_sample(*call, CPU, TOKENS)
    routes = int(((call[0].token_selected_experts[TOKENS] >= 0) & (call[0].token_selected_experts[TOKENS] < 896)).sum())
    assert report.stages["fc1"].elements == 384 * routes
    assert report.stages["fc2"].elements == 3584 * routes
    assert 0 < report.row_error <= report.row_bound


def test_taken_rows_are_those_of_the_tokens(call: tuple[MoeInputs, Tensor, stages.Stages]) -> None:
    problem, _, dump = call
    taken = take_stages(dump, problem.token_selected_experts, TOKENS)
    for position, token in enumerate(TOKENS.tolist()):
        assert torch.equal(taken.xq[position], dump.xq[token])
        for slot in range(16):
            row, old = int(taken.route_row[position, slot]), int(dump.route_row[token, slot])
            assert (row < 0) == (old < 0)
            if row >= 0:
                assert int(taken.row_route[row]) == 16 * position + slot
                assert torch.equal(taken.y[row].view(torch.int16), dump.y[old].view(torch.int16))
                assert torch.equal(taken.hq[row], dump.hq[old])


@pytest.mark.parametrize("section", ["xq", "xs", "hq", "hs", "y"])
def test_a_wrong_row_of_a_sampled_token_is_found(section: str, call: tuple[MoeInputs, Tensor, stages.Stages]) -> None:
    problem, output, dump = call
    token = int(TOKENS[1])
    row = token if section in ("xq", "xs") else int(dump.route_row[token].max())
    wrong = getattr(dump, section).clone()
    wrong[row].view(torch.uint8)[5] ^= 0x11
    with pytest.raises(Mismatch):
        compare_sample(problem, output, replace(dump, **{section: wrong}), CPU, TOKENS)


def test_wrong_tables_and_outputs_of_other_tokens_are_found() -> None:
    problem = make_inputs(9, routing="zipf", experts=expert_pool(20), seed=4)
    output, dump = stages.run(problem)
    swapped = dump.route_row.clone()
    swapped[5, :2] = swapped[5, [1, 0]]
    with pytest.raises(Mismatch, match="route, route_row"):
        compare_sample(problem, output, replace(dump, route_row=swapped), CPU, TOKENS)
    unwritten = output.clone()
    unwritten[7, 100] = torch.nan
    with pytest.raises(AssertionError, match="token 7: the output holds NaN or was not written"):
        compare_sample(problem, unwritten, dump, CPU, TOKENS)
