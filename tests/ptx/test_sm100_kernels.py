"""The sm_100a and sm_103a plan in the interpreter: these kernels have never run on a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from ptx_cases import (
    KINDS_OF_INPUT,
    POOL,
    SCHEDULES,
    crowded,
    id_of,
    judge,
    same_bits,
    same_under,
    sparse,
    spread,
)
from ptx_operator import Call
from ptx_program import program
from ptxrun.api import Schedule

from cake_moe._native import _C
from cake_moe.layout import TOP_K
from cake_moe.testing.inputs import make_inputs
from cake_moe.testing.plans import plan_rows
from cake_moe.testing.stages import run

SM_COUNT = 148
EVERY_SCHEDULE: list[tuple[Schedule, int]] = [("early", 0), ("late", 0), ("random", 1)]
# Counts that were asked for by number, beside the first of each path of the plan.
FEW_TOKENS = [1, 2, 7, 8, 16, 33, 64]
MORE_TOKENS = [100, 160, 300, 1024, 3000, 16384]
PATHS = plan_rows("sm_100a", SM_COUNT)
FIRST_OF_PATH = [row.first for row in PATHS]
OF_FEW_TOKENS = [count for count in FIRST_OF_PATH if count <= FEW_TOKENS[-1]]
ROUTED_FEW = sorted({*FEW_TOKENS, *OF_FEW_TOKENS})
ROUTED_MORE = sorted({*MORE_TOKENS, *FIRST_OF_PATH} - {*OF_FEW_TOKENS})
SKEWED = sorted({*FEW_TOKENS, *MORE_TOKENS, *FIRST_OF_PATH})
TEN_SEEDS = sorted({8, *MORE_TOKENS, *FIRST_OF_PATH})
ROUTINGS = ["uniform", "zipf", "one_group", "duplicates", "no_route", "nan"]


@pytest.mark.parametrize("counts", [ROUTED_FEW + ROUTED_MORE, SKEWED, TEN_SEEDS], ids=["routings", "skewed", "seeds"])
def test_every_path_is_among_the_counts(counts: list[int]) -> None:
    """And every count that was asked for, but for the small ones of the ten seeds."""
    taken = {_C.make_plan(count, "sm_100a", SM_COUNT)["path"] for count in counts}
    assert taken == {row.path for row in PATHS}
    assert {*MORE_TOKENS, 8} <= set(counts)
    assert counts is TEN_SEEDS or set(FEW_TOKENS) <= set(counts)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("num_tokens", "routes"), [(1, 2), (2, 3), (9, 4), (65, 3), (225, 3)])
def test_few_routes(num_tokens: int, routes: int, schedule: Schedule) -> None:
    problem = sparse(num_tokens, routes)
    call = Call(problem, "100a", sm_count=SM_COUNT)
    call.run(schedule, seed=num_tokens).raise_on_findings()
    judge(problem, call)
    same_bits(problem, *call.result())


@pytest.mark.parametrize(
    ("num_tokens", "rows"), [(7, {1: 7}), (8, {1: 8, 4: 3}), (65, {1: 8, 4: 7}), (8, {0: 9, 3: 8, 15: 1})]
)
def test_full_tiles(num_tokens: int, rows: dict[int, int]) -> None:
    same_under(crowded(num_tokens, rows), EVERY_SCHEDULE, "100a", SM_COUNT)


@pytest.mark.parametrize("routing", ["nan", "duplicates", "no_route"])
def test_routings(routing: str) -> None:
    same_under(spread(7, routing, tokens=2, slots=3), EVERY_SCHEDULE, "100a", SM_COUNT)


def test_sm_103a() -> None:
    problem = sparse(2, 3)
    call = Call(problem, "103a", sm_count=160)
    call.run("random", seed=4).raise_on_findings()
    judge(problem, call)
    same_bits(problem, *call.result())


def test_sm_103a_has_the_text_of_sm_100a() -> None:
    """What is seen of one is true of the other, for every kernel of the plan."""
    kernels = ("cake_moe_sm100_experts", "cake_moe_prologue", "cake_moe_finalize")
    found = 0
    for (fat_binary, number), text in program("100a").modules.items():
        if number == 100 and any(name in text for name in kernels):
            found += 1
            assert program("103a").modules[fat_binary, 103].replace(".target sm_103a", ".target sm_100a") == text
    assert found == len(kernels)


@pytest.mark.parametrize("num_tokens", [2, 20, 65])
def test_several_units_a_cta(num_tokens: int) -> None:
    """Few SMs: rings go round, tensor memory is used again, a CTA quantises several tokens."""
    problem = sparse(num_tokens, 2)
    call = Call(problem, "100a", sm_count=8)
    call.run("late").raise_on_findings()
    judge(problem, call)
    same_bits(problem, *call.result())


@pytest.mark.parametrize("options", KINDS_OF_INPUT, ids=id_of)
def test_kinds_of_input(options: dict[str, Any]) -> None:
    problem = make_inputs(3, experts=POOL, seed=7, **options)
    call = Call(problem, "100a", sm_count=SM_COUNT)
    call.run("random", seed=1).raise_on_findings()
    judge(problem, call)


@pytest.mark.parametrize(
    ("num_tokens", "rows"),
    [
        (65, {1: 8, 4: 3}),
        (225, {2: 13}),
        (545, {3: 32, 5: 17}),
        pytest.param(1217, {0: 64, 4: 33}, marks=pytest.mark.full),
        pytest.param(3000, {1: 96, 2: 65}, marks=pytest.mark.full),
        pytest.param(4353, {1: 128, 2: 3}, marks=pytest.mark.full),
        pytest.param(16384, {0: 192, 6: 193}, marks=pytest.mark.full),
    ],
)
def test_sums_that_round(num_tokens: int, rows: dict[int, int]) -> None:
    """Random inputs and a global scale of the input that is not 1: each stage within the derived bound."""
    problem = crowded(num_tokens, rows, kind="normal")
    call = Call(problem, "100a", sm_count=SM_COUNT)
    call.run("random", seed=num_tokens).raise_on_findings()
    judge(problem, call)


@pytest.mark.parametrize("num_tokens", [2, 65])
def test_betas_far_from_one(num_tokens: int) -> None:
    """The activation divides as the CPU backend does; half of a subnormal beta has no finite reciprocal."""
    problem = sparse(num_tokens, 3)
    for betas in (problem.situ_beta, problem.situ_linear_beta):
        assert betas is not None
        betas[problem.active_experts] = torch.tensor([1e-39, 3e38, 3.0])[: len(problem.active_experts)]
    call = Call(problem, "100a", sm_count=SM_COUNT)
    call.run("late").raise_on_findings()
    judge(problem, call)
    same_bits(problem, *call.result())


def test_rows_beyond_16_bits() -> None:
    """The experts kernel alone, fed with tiles whose rows lie where 65,536 and more routes would put them."""
    problem, first, count = sparse(5000, 3), 70_000, 3
    _, expected = run(problem)
    plan = Call(problem, "100a").plan
    row_route = torch.zeros(TOP_K * problem.num_tokens, dtype=torch.int32)
    row_route[first : first + count] = expected.row_route[:count]
    tiles = torch.zeros(plan["workspace"]["tiles"][1] // 16, 4, dtype=torch.int32)
    ids = problem.token_selected_experts.view(-1)
    for row in range(count):
        tiles[row, :3] = torch.tensor([ids[expected.row_route[row]], first + row, 1])
    given = {
        "xq": expected.xq,
        "xs": expected.xs,
        "row_route": row_route,
        "tiles": tiles,
        "tile_count": torch.tensor([count], dtype=torch.int32),
        "work_counter": torch.zeros(1, dtype=torch.int32),
    }
    call = Call(problem, "100a", sm_count=SM_COUNT, given=given)
    call.run("random", seed=1, stages=["experts"]).raise_on_findings()
    _, stages = call.result()
    for name in ("hq", "hs", "y"):
        got, wanted = getattr(stages, name)[first : first + count], getattr(expected, name)[:count]
        assert torch.equal(got.view(torch.uint8), wanted.view(torch.uint8)), name


@pytest.mark.full
@pytest.mark.parametrize("num_tokens", FEW_TOKENS)
def test_whole_operator(num_tokens: int) -> None:
    """All 16 routes of every token, uniform over all 896 experts."""
    same_under(make_inputs(num_tokens, kind="integer", seed=num_tokens), EVERY_SCHEDULE, "100a", SM_COUNT)


@pytest.mark.full
@pytest.mark.parametrize("num_tokens", FEW_TOKENS)
def test_every_token_routed(num_tokens: int) -> None:
    """All 16 routes of every token, in 16 experts."""
    problem = make_inputs(num_tokens, kind="integer", experts=POOL, seed=num_tokens)
    same_under(problem, EVERY_SCHEDULE, "100a", SM_COUNT)


@pytest.mark.full
@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("num_tokens", ROUTED_FEW)
def test_routings_of_few_tokens(num_tokens: int, routing: str) -> None:
    same_under(spread(num_tokens, routing), EVERY_SCHEDULE, "100a", SM_COUNT)


@pytest.mark.full
@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("num_tokens", ROUTED_MORE)
def test_routings_of_more_tokens(num_tokens: int, routing: str) -> None:
    same_under(spread(num_tokens, routing, tokens=4, slots=4), EVERY_SCHEDULE, "100a", SM_COUNT)


@pytest.mark.full
@pytest.mark.parametrize("num_tokens", SKEWED)
def test_skewed(num_tokens: int) -> None:
    """Every path of the plan: experts whose rows fill a tile, all but, and one more, and one of several tiles."""
    tile = _C.make_plan(num_tokens, "sm_100a", SM_COUNT)["launches"][-2]["tile_tokens"]
    rows = {0: 2 * tile + 1, 3: tile, 4: tile + 1, 9: tile - 1, 15: 1}
    slots = num_tokens * TOP_K
    fitting = {expert: count for expert, count in rows.items() if count <= slots // 4}
    same_under(crowded(num_tokens, fitting), EVERY_SCHEDULE, "100a", SM_COUNT)


@pytest.mark.full
@pytest.mark.parametrize("num_tokens", TEN_SEEDS)
def test_ten_seeds(num_tokens: int) -> None:
    same_under(
        spread(num_tokens, "zipf", tokens=3, slots=4), [("random", seed) for seed in range(10)], "100a", SM_COUNT
    )
