"""Kernels without an architecture's own instructions, in the PTX of each architecture, against the CPU backend."""

from __future__ import annotations

import pytest
import torch
from ptx_cases import sparse
from ptx_operator import Call, run_quantize

from cake_moe.testing.inputs import INPUT_KINDS, make_input, make_inputs
from cake_moe.testing.routings import expert_pool
from cake_moe.testing.stages import run

ARCHS = ["90a", "100a", "103a"]
SCHEDULES = ["early", "late", "random"]
POOL = expert_pool(32)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("kind", INPUT_KINDS)
def test_quantize(kind: str, arch: str) -> None:
    x = make_input(kind, 3, seed=1)
    encode = torch.tensor([0.37])
    packed, scales, report = run_quantize(x, encode, arch)
    report.raise_on_findings()
    expected_packed, expected_scales = torch.ops.cake.quantize_nvfp4(x, encode)
    assert torch.equal(packed, expected_packed)
    assert torch.equal(scales, expected_scales)


def check_prologue(call: Call, schedule: str) -> None:
    """Quantised input and route tables are those of the CPU backend."""
    call.run(schedule, seed=3, stages=["prologue"]).raise_on_findings()
    _, stages = call.result()
    _, expected = run(call.problem)
    rows = int(expected.expert_offsets[-1])
    for name in ("expert_offsets", "route_row", "xq", "xs"):
        assert torch.equal(getattr(stages, name), getattr(expected, name)), name
    assert torch.equal(stages.row_route[:rows], expected.row_route[:rows])


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("num_tokens", "routing"), [(65, "duplicates"), (70, "out_of_range"), (150, "no_route")])
def test_prologue(num_tokens: int, routing: str, schedule: str, arch: str) -> None:
    """150 tokens are routed by a cluster. Smaller calls have no prologue."""
    call = Call(make_inputs(num_tokens, routing=routing, experts=POOL, seed=2), arch)
    check_prologue(call, schedule)


@pytest.mark.parametrize("arch", ARCHS)
def test_prologue_of_many_routes(arch: str) -> None:
    """More routes than the warps of the cluster hold the ids of: the last ones are read a second time."""
    call = Call(make_inputs(4100, routing="no_route", experts=POOL, seed=2), arch, sm_count=8)
    check_prologue(call, "random")


@pytest.mark.parametrize("arch", ["100a", "103a"])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("weights", [torch.bfloat16, torch.float32])
def test_finalize(weights: torch.dtype, schedule: str, arch: str) -> None:
    """Fed with y and route_row of the CPU backend. sm_90a has no launch of it."""
    problem = make_inputs(9, routing="out_of_range", experts=POOL, seed=4, route_weight_dtype=weights)
    expected_output, expected = run(problem)
    call = Call(problem, arch, given={"route_row": expected.route_row, "y": expected.y})
    call.run(schedule, seed=5, stages=["finalize"]).raise_on_findings()
    output, _ = call.result()
    assert torch.equal(output.view(torch.int16), expected_output.view(torch.int16))


@pytest.mark.parametrize("arch", ["100a", "103a"])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("weights", [torch.bfloat16, torch.float32])
def test_finalize_of_many_tokens(weights: torch.dtype, schedule: str, arch: str) -> None:
    """The ring of persistent CTAs goes round many times; most routes are empty, some invalid."""
    problem = sparse(1024, 200, route_weight_dtype=weights)
    ids = problem.token_selected_experts
    ids[100, 3], ids[1023, 15] = 900, -2
    expected_output, expected = run(problem)
    call = Call(problem, arch, sm_count=3, given={"route_row": expected.route_row, "y": expected.y})
    call.run(schedule, seed=5, stages=["finalize"]).raise_on_findings()
    output, _ = call.result()
    assert torch.equal(output.view(torch.int16), expected_output.view(torch.int16))
