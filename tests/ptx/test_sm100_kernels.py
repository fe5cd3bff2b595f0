"""The sm_100a and sm_103a plan in the interpreter: these kernels have never run on a GPU."""

from __future__ import annotations

from typing import Any

import pytest
from ptx_cases import KINDS_OF_INPUT, POOL, SCHEDULES, id_of, judge, same_bits, sparse
from ptx_operator import Call
from ptxrun.api import Schedule

from cake_moe.testing.inputs import make_inputs

ARCHS = ["100a", "103a"]
SM_COUNT = 148


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("num_tokens", "routes"), [(1, 2), (2, 3), (9, 4), (65, 3), (225, 3)])
def test_few_routes(num_tokens: int, routes: int, schedule: Schedule) -> None:
    problem = sparse(num_tokens, routes)
    call = Call(problem, "100a", sm_count=SM_COUNT)
    call.run(schedule, seed=num_tokens).raise_on_findings()
    judge(problem, call)
    same_bits(problem, *call.result())


def test_sm_103a() -> None:
    problem = sparse(2, 3)
    call = Call(problem, "103a", sm_count=160)
    call.run("random", seed=4).raise_on_findings()
    judge(problem, call)
    same_bits(problem, *call.result())


@pytest.mark.parametrize("num_tokens", [2, 65])
def test_several_units_a_cta(num_tokens: int) -> None:
    """Few SMs: rings go round, tensor memory is used again."""
    problem = sparse(num_tokens, 2)
    call = Call(problem, "100a", sm_count=8)
    call.run("late").raise_on_findings()
    judge(problem, call)
    same_bits(problem, *call.result())


@pytest.mark.full
@pytest.mark.parametrize("options", KINDS_OF_INPUT, ids=id_of)
def test_kinds_of_input(options: dict[str, Any]) -> None:
    problem = make_inputs(3, experts=POOL, seed=7, **options)
    call = Call(problem, "100a", sm_count=SM_COUNT)
    call.run("random", seed=1).raise_on_findings()
    judge(problem, call)


@pytest.mark.full
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("num_tokens", [1, 2, 7, 8, 16, 33, 64])
def test_decode(num_tokens: int, schedule: Schedule, arch: str) -> None:
    problem = make_inputs(num_tokens, kind="integer", experts=POOL, seed=num_tokens)
    call = Call(problem, arch, sm_count=SM_COUNT)
    call.run(schedule, seed=num_tokens).raise_on_findings()
    judge(problem, call)
    same_bits(problem, *call.result())


@pytest.mark.full
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("num_tokens", [100, 160, 300, 1024, 3000, 5000, 6000, 10000, 16384])
def test_larger_calls(num_tokens: int, schedule: Schedule) -> None:
    """Every path of the plan; few routes keep the number of units small."""
    problem = sparse(num_tokens, 40)
    call = Call(problem, "100a", sm_count=SM_COUNT)
    call.run(schedule, seed=num_tokens).raise_on_findings()
    judge(problem, call)
    same_bits(problem, *call.result())
