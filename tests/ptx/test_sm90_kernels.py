"""Every launch of the sm_90a plan in the interpreter: stage by stage, and the whole operator."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from ptx_cases import KINDS_OF_INPUT, POOL, SCHEDULES, crowded, id_of, judge, same_bits, sparse, token_tiles
from ptx_operator import Call
from ptxrun.api import Schedule

from cake_moe.testing.inputs import make_inputs
from cake_moe.testing.stages import run


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("num_tokens", "routes"), [(1, 2), (2, 3), (9, 4), (65, 3)])
def test_few_routes(num_tokens: int, routes: int, schedule: Schedule) -> None:
    problem = sparse(num_tokens, routes)
    call = Call(problem)
    call.run(schedule, seed=num_tokens).raise_on_findings()
    judge(problem, call)
    same_bits(problem, *call.result())


@pytest.mark.parametrize(("num_tokens", "sms"), [(2, 1), (65, 8)])
def test_several_units_a_cta(num_tokens: int, sms: int) -> None:
    """Persistent kernels on few SMs: rings go round, shared memory is used again."""
    problem = sparse(num_tokens, 2)
    call = Call(problem, sm_count=sms)
    call.run("late").raise_on_findings()
    judge(problem, call)
    same_bits(problem, *call.result())


@pytest.mark.parametrize("num_tokens", [3, 66])
def test_default_betas_and_float_weights(num_tokens: int) -> None:
    problem = sparse(num_tokens, 2, random_betas=False, route_weight_dtype=torch.float32)
    call = Call(problem)
    call.run("random", seed=2).raise_on_findings()
    judge(problem, call)


@pytest.mark.parametrize("num_tokens", [321, pytest.param(2305, marks=pytest.mark.full)])
def test_warpgroup_mma(num_tokens: int) -> None:
    """Paths of larger calls, with few routes."""
    problem = sparse(num_tokens, 3)
    call = Call(problem)
    call.run("late").raise_on_findings()
    judge(problem, call)
    same_bits(problem, *call.result())


@pytest.mark.parametrize(
    ("num_tokens", "rows"),
    [
        (700, [24, 25]),
        pytest.param(1400, [48, 41, 32, 17], marks=pytest.mark.full),
        pytest.param(2500, [64, 57, 41], marks=pytest.mark.full),
        pytest.param(3000, [80, 73, 57], marks=pytest.mark.full),
        pytest.param(4000, [96, 89, 73], marks=pytest.mark.full),
        pytest.param(5000, [112, 97, 113, 1], marks=pytest.mark.full),
        pytest.param(6000, [128, 113, 129], marks=pytest.mark.full),
    ],
)
def test_full_tiles(num_tokens: int, rows: list[int]) -> None:
    """Token tiles of many rows: every width of FC1's MMAs, several passes of its epilogue, experts of two tiles."""
    problem = crowded(num_tokens, dict(enumerate(rows)))
    call = Call(problem, sm_count=8)
    call.run("random", seed=num_tokens).raise_on_findings()
    judge(problem, call)
    same_bits(problem, *call.result())


def run_fc2(num_tokens: int, rows: list[int], sm_count: int, schedule: Schedule, seed: int) -> None:
    """FC2 alone, on the CPU backend's hq and hs, and tiles of that many rows."""
    problem = crowded(num_tokens, dict(enumerate(rows)))
    _, expected = run(problem)
    plan = Call(problem).plan
    given = {"hq": expected.hq, "hs": expected.hs} | token_tiles(expected, plan)
    call = Call(problem, sm_count=sm_count, given=given)
    call.run(schedule, seed=seed, stages=["fc2"]).raise_on_findings()
    _, stages = call.result()
    assert torch.equal(stages.y[: sum(rows)].view(torch.int16), expected.y[: sum(rows)].view(torch.int16))


@pytest.mark.full
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("num_tokens", "rows"),
    [
        (128, [8, 7, 1]),
        (512, [16, 9, 3]),
        (700, [24, 17, 1]),
        (1200, [32, 25, 5]),
        (2000, [48, 40, 33, 1]),
        (2500, [64, 57, 56, 48, 33, 3]),
        (3000, [80, 71, 64, 49, 1]),
        (4000, [96, 88, 80, 65, 64, 9]),
        (5000, [112, 97, 96, 81, 80, 17]),
        (6000, [128, 120, 105, 97, 96, 1]),
    ],
)
def test_columns_of_fc2(num_tokens: int, rows: list[int], schedule: Schedule, seed: int) -> None:
    """Tiles of many sizes meet the instances of FC2's MMAs; one CTA has several tiles."""
    run_fc2(num_tokens, rows, 2, schedule, seed)


@pytest.mark.full
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("num_tokens", "sm_count"), [(128, 1), (700, 2), (2500, 2), (5000, 1)])
def test_rounds_of_fc2(num_tokens: int, sm_count: int, schedule: Schedule) -> None:
    """17 tiles: whole ones in rounds, one that two CTAs share, or none."""
    most = Call(crowded(num_tokens, {0: 1})).plan["launches"][-2]["tile_tokens"]
    run_fc2(num_tokens, [most + 1, *range(1, 16)], sm_count, schedule, seed=num_tokens)


@pytest.mark.full
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("num_tokens", [1, 2, 9])
def test_the_operator(num_tokens: int, schedule: Schedule) -> None:
    """16 experts, integer-valued inputs."""
    problem = make_inputs(num_tokens, kind="integer", experts=POOL, seed=num_tokens)
    call = Call(problem)
    call.run(schedule, seed=num_tokens).raise_on_findings()
    judge(problem, call)
    same_bits(problem, *call.result())


@pytest.mark.full
@pytest.mark.parametrize("options", KINDS_OF_INPUT, ids=id_of)
def test_kinds_of_input(options: dict[str, Any]) -> None:
    problem = make_inputs(3, experts=POOL, seed=7, **options)
    call = Call(problem)
    call.run("random", seed=1).raise_on_findings()
    judge(problem, call)


@pytest.mark.full
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("num_tokens", [33, 64, 65, 330, 700, 1100, 1400, 2500, 3000, 4000, 5000, 6000])
def test_larger_calls(num_tokens: int, schedule: Schedule) -> None:
    """Paths of the plan with a token tile of their own; few routes keep the number of units small."""
    problem = sparse(num_tokens, 40)
    call = Call(problem)
    call.run(schedule, seed=num_tokens).raise_on_findings()
    judge(problem, call)
    same_bits(problem, *call.result())


@pytest.mark.full
def test_one_token_takes_seconds() -> None:
    """All stages of M=1 with every check: 20 s on two idle cores; other work on the machine may triple that."""
    problem = make_inputs(1, kind="integer", seed=9)
    call = Call(problem)
    launches = call.launches()
    start = time.process_time()
    report = call.execute(launches, "late")
    seconds = time.process_time() - start
    print(f"M=1: {report.instructions} warp instructions in {seconds:.1f} s of processor time")
    report.raise_on_findings()
    assert seconds < 60
