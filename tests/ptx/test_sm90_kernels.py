"""Every launch of the sm_90a plan in the interpreter: stage by stage, and the whole operator."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from ptx_cases import KINDS_OF_INPUT, POOL, SCHEDULES, crowded, id_of, judge, same_bits, sparse, token_tiles
from ptx_operator import Call
from ptxrun.api import Schedule

from cake_moe.testing.inputs import MoeInputs, make_inputs
from cake_moe.testing.stages import run


def fc2_alone(problem: MoeInputs, rows: Sequence[int], sm_count: int) -> Call:
    """FC2 of a `crowded` problem, an expert a tile, fed with what the CPU backend gives."""
    _, expected = run(problem)
    given = {name: getattr(expected, name) for name in ("hq", "hs", "route_row")}
    given |= {"progress": torch.zeros(3, dtype=torch.int32), "work_counter": torch.zeros(1, dtype=torch.int32)}
    return Call(problem, sm_count=sm_count, given=given | token_tiles(expected, rows, Call(problem).plan))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("num_tokens", "routes"), [(1, 2), (2, 3), (4, 3), (5, 3), (9, 4), (33, 4), (65, 3)])
def test_few_routes(num_tokens: int, routes: int, schedule: Schedule) -> None:
    problem = sparse(num_tokens, routes)
    call = Call(problem)
    call.run(schedule, seed=num_tokens).raise_on_findings()
    judge(problem, call)
    same_bits(problem, *call.result())


@pytest.mark.parametrize("schedule", ["random", *(pytest.param(s, marks=pytest.mark.full) for s in ("early", "late"))])
@pytest.mark.parametrize("num_tokens", [4, 5, 34])
def test_several_tiles(num_tokens: int, schedule: Schedule) -> None:
    """Tiles that are full or just begun, routes without an expert and with one that does not exist, by one CTA."""
    problem = crowded(num_tokens, {3: 17, 1: 8, 2: 9})
    problem.token_selected_experts[-1, -3:] = torch.tensor([900, -1, -7])
    call = Call(problem, sm_count=1)
    call.run(schedule, seed=num_tokens).raise_on_findings()
    judge(problem, call)
    same_bits(problem, *call.result())


@pytest.mark.parametrize(
    ("num_tokens", "routes", "sms"), [(2, 2, 1), (40, 3, 1), (64, 2, 8), (65, 2, 8), (321, 3, 8), (321, 4, 8)]
)
def test_several_units_a_cta(num_tokens: int, routes: int, sms: int) -> None:
    """Persistent kernels on few SMs: rings go round, shared memory is used again, FC2 begins before FC1 has ended."""
    problem = sparse(num_tokens, routes)
    call = Call(problem, sm_count=sms)
    call.run("late").raise_on_findings()
    judge(problem, call)
    same_bits(problem, *call.result())


@pytest.mark.parametrize("sms", [1, 3])
@pytest.mark.parametrize("num_tokens", [66, 400])
def test_not_all_ctas_of_fc2_are_resident(num_tokens: int, sms: int) -> None:
    """A plan for more SMs than take FC2's CTAs at once: those that end early leave the finalise stage to later ones."""
    rows = (7, 3, 1)
    problem = crowded(num_tokens, dict(enumerate(rows)))
    call = fc2_alone(problem, rows, sm_count=8)
    launches = call.launches(["fc2"])
    call.sm_count = sms
    call.execute(launches, "late").raise_on_findings()
    expected, _ = run(problem)
    output, _ = call.result()
    assert torch.equal(output.view(torch.int16), expected.view(torch.int16))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("weights", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("num_tokens", [101, 500])
def test_finalise_of_many_tokens(num_tokens: int, weights: torch.dtype, schedule: Schedule) -> None:
    """FC2's warps take several parts each, its ring of tokens goes round; most routes are empty, some invalid."""
    problem = sparse(num_tokens, 3, route_weight_dtype=weights)
    ids = problem.token_selected_experts
    ids[num_tokens // 5, 3], ids[-1, 15] = 900, -2
    call = Call(problem, sm_count=8)
    call.run(schedule, seed=5).raise_on_findings()
    judge(problem, call)
    same_bits(problem, *call.result())


@pytest.mark.parametrize(("sms", "tiles"), [(1, 8), (2, 8), (11, 2)])
def test_items_of_fc2(sms: int, tiles: int) -> None:
    """CTAs draw whole tiles, halves and quarters; two tiles for eleven CTAs fall into five unequal parts each."""
    rows = (1,) * tiles
    problem = crowded(400, dict(enumerate(rows)))
    call = fc2_alone(problem, rows, sm_count=sms)
    call.run("random", seed=3, stages=["fc2"]).raise_on_findings()
    expected, _ = run(problem)
    output, _ = call.result()
    assert torch.equal(output.view(torch.int16), expected.view(torch.int16))


@pytest.mark.parametrize("num_tokens", [3, 6, 66])
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
        (700, [24, 25, 1]),
        pytest.param(300, [16, 8], marks=pytest.mark.full),
        pytest.param(1100, [32, 24, 9, 1], marks=pytest.mark.full),
        pytest.param(1400, [48, 41, 32, 17, 16, 8], marks=pytest.mark.full),
        pytest.param(2500, [64, 57, 41, 40, 31, 7], marks=pytest.mark.full),
        pytest.param(3000, [80, 73, 57, 56, 41, 3], marks=pytest.mark.full),
        pytest.param(4000, [96, 89, 73, 72, 57], marks=pytest.mark.full),
        pytest.param(5000, [112, 97, 113, 1, 96, 81], marks=pytest.mark.full),
        pytest.param(6000, [128, 113, 129, 112, 97], marks=pytest.mark.full),
        pytest.param(2500, [16, 8, 1], marks=pytest.mark.full),
        pytest.param(3000, [40, 24, 17, 8], marks=pytest.mark.full),
        pytest.param(4000, [56, 48, 40, 32, 24, 8], marks=pytest.mark.full),
        pytest.param(5000, [72, 64, 56, 40, 24, 16, 8], marks=pytest.mark.full),
        pytest.param(6000, [88, 80, 72, 48, 40, 9], marks=pytest.mark.full),
    ],
)
def test_full_tiles(num_tokens: int, rows: list[int]) -> None:
    """Token tiles of many rows: every width of FC1's MMAs, several passes of its epilogue, experts of two tiles."""
    problem = crowded(num_tokens, dict(enumerate(rows)))
    call = Call(problem, sm_count=8)
    call.run("random", seed=num_tokens).raise_on_findings()
    judge(problem, call)
    same_bits(problem, *call.result())


@pytest.mark.full
@pytest.mark.parametrize(
    ("num_tokens", "rows"),
    [
        (2500, (64, 57, 56, 48, 33, 3)),
        (3000, (80, 71, 64, 49, 1)),
        (4000, (96, 88, 80, 65, 64, 9)),
        (5000, (112, 97, 96, 81, 80, 17)),
    ],
)
def test_columns_of_fc2(num_tokens: int, rows: tuple[int, ...]) -> None:
    """Tiles of many sizes meet the instances of FC2's MMAs; one CTA has several tiles."""
    problem = crowded(num_tokens, dict(enumerate(rows)))
    call = fc2_alone(problem, rows, sm_count=2)
    call.run("random", seed=num_tokens, stages=["fc2"]).raise_on_findings()
    _, expected = run(problem)
    _, stages = call.result()
    assert torch.equal(stages.y[: sum(rows)].view(torch.int16), expected.y[: sum(rows)].view(torch.int16))


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
@pytest.mark.parametrize("num_tokens", [3, 6])
@pytest.mark.parametrize("options", KINDS_OF_INPUT, ids=id_of)
def test_kinds_of_input(options: dict[str, Any], num_tokens: int) -> None:
    problem = make_inputs(num_tokens, experts=POOL, seed=7, **options)
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
