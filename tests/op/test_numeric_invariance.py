"""Bitwise independence of what must not matter: threads, instruction set, companions, old memory, FP modes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import cake_moe
from cake_moe._native import _C
from cake_moe.layout import TOP_K
from cake_moe.testing.compare import compare
from cake_moe.testing.inputs import MoeInputs, RandomWeights, make_inputs
from cake_moe.testing.routings import expert_pool
from cake_moe.testing.stages import Stages, call, run, stage_views

POOL = expert_pool(32)


def problems() -> list[MoeInputs]:
    """A few small problems that together reach every branch: edges of routing, NaN, subnormals, wide scales."""
    return [
        make_inputs(33, experts=POOL, seed=1),
        make_inputs(9, routing="out_of_range", kind="nan_row", experts=POOL, seed=2),
        make_inputs(17, routing="duplicates", kind="subnormal", experts=POOL, seed=3, random_betas=False),
        make_inputs(40, routing="one_group", kind="wide", experts=POOL, seed=4, route_weight_dtype=torch.float32),
    ]


def digest(output: Tensor, stages: Stages) -> str:
    """Of the output and of all rows in use."""
    rows = int(stages.expert_offsets[-1])
    used = [output, stages.expert_offsets, stages.row_route[:rows], stages.route_row, stages.xq, stages.xs]
    used += [stages.hq[:rows], stages.hs[:rows], stages.y[:rows]]
    state = hashlib.sha256()
    for part in used:
        state.update(part.contiguous().view(torch.uint8).numpy().tobytes())
    return state.hexdigest()


def digests(several: list[MoeInputs] | None = None) -> list[str]:
    return [digest(*run(problem)) for problem in several or problems()]


@pytest.fixture
def restore_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("restore_threads")
def test_number_of_threads() -> None:
    results = []
    for threads in (1, 2, 3, 7):
        torch.set_num_threads(threads)
        results.append(digests())
    assert all(result == results[0] for result in results)


def test_repeated_calls() -> None:
    problem = problems()[0]
    assert len({digest(*run(problem)) for _ in range(20)}) == 1


_ISA_SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
import cake_moe
import test_numeric_invariance as test
print(cake_moe.build_info()["cpu_isa"], *test.digests())
"""


def test_instruction_sets() -> None:
    """Every instruction set that this processor has, chosen by CAKE_MOE_CPU_ISA, gives the bits of the default."""
    expected = digests()
    with open("/proc/cpuinfo") as info:
        flags = set(next((line.split(":")[1] for line in info if line.startswith("flags")), "").split())
    isas = ["portable"]
    if {"avx2", "fma"} <= flags:
        isas.append("avx2")
    if {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"} <= flags:
        isas.append("avx512")
    for isa in isas:
        result = subprocess.run(
            [sys.executable, "-c", _ISA_SCRIPT, os.path.dirname(__file__)],
            env={**os.environ, "CAKE_MOE_CPU_ISA": isa},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert result.returncode == 0, result.stderr
        assert result.stdout.split() == [isa, *expected]


def test_row_does_not_depend_on_its_companions() -> None:
    whole = make_inputs(33, experts=POOL, seed=5)
    expected, _ = run(whole)
    order = torch.randperm(33, generator=torch.Generator().manual_seed(0))
    for tokens in (torch.tensor([0]), torch.tensor([32]), torch.arange(7, 24), order, order[:8].repeat(5)):
        output, _ = run(whole.take(tokens))
        assert torch.equal(output, expected[tokens])


def test_order_of_slots_changes_only_the_last_sum() -> None:
    """FC2's row of a route is the same wherever its slot stands."""
    problem = make_inputs(5, experts=POOL, seed=6)
    _, stages = run(problem)
    flipped = make_inputs(5, experts=POOL, seed=6)
    flipped.token_selected_experts.copy_(problem.token_selected_experts.flip(1))
    _, other = run(flipped)
    y = stages.y[stages.route_row.long()]
    assert torch.equal(y.flip(1), other.y[other.route_row.long()])


@pytest.mark.parametrize("fill", [0x00, 0x7F, 0xFF])
def test_old_memory(fill: int) -> None:
    """What output and workspace held before has no effect, and every element of the output is written."""
    for problem in problems():
        expected, stages = run(problem)
        want = digest(expected, stages)
        tokens = problem.num_tokens
        workspace = torch.full((_C.workspace_bytes(tokens),), fill, dtype=torch.uint8)
        cake_moe.prepare_workspace(workspace, tokens)
        views = stage_views(workspace, tokens)
        for repeat in range(2):
            output = torch.empty_like(problem.input)
            output.view(torch.uint8).fill_(fill)
            for name, view in vars(views).items():
                if name not in ("beta", "linear_beta"):
                    view.view(torch.uint8).fill_(fill)
            call(problem, workspace, output)
            assert digest(output, views) == want, repeat


def test_rows_beyond_the_used_ones_and_neighbours_are_left_alone() -> None:
    """Nothing outside the layout's sections in use is written: rows past R, and bytes past the layout's end."""
    problem = make_inputs(12, routing="no_route", experts=POOL, seed=7)
    tokens = problem.num_tokens
    plan = _C.make_plan(tokens, "cpu", 0)
    workspace = torch.full((_C.workspace_bytes(tokens) + 4096,), 0xAB, dtype=torch.uint8)
    cake_moe.prepare_workspace(workspace, tokens)
    output = torch.empty(tokens + 2, problem.input.shape[1], dtype=torch.bfloat16)
    output.view(torch.uint8).fill_(0xAB)
    call(problem, workspace, output[1:-1])
    views = stage_views(workspace, tokens)
    rows = int(views.expert_offsets[-1])
    assert rows < TOP_K * tokens
    for name in ("hq", "hs", "y"):
        assert (getattr(views, name)[rows:].view(torch.uint8) == 0xAB).all(), name
    assert (workspace[plan["workspace_total"] :] == 0xAB).all()
    assert (output[0].view(torch.uint8) == 0xAB).all()
    assert (output[-1].view(torch.uint8) == 0xAB).all()


def test_one_workspace_for_many_counts() -> None:
    """A buffer prepared for several counts serves them in turn with the results of a fresh one."""
    several = [make_inputs(n, experts=POOL, seed=n) for n in (20, 3, 11)]
    expected = [run(problem)[0] for problem in several]
    workspace = torch.full((_C.workspace_bytes(20),), 0xFF, dtype=torch.uint8)
    for problem in several:
        cake_moe.prepare_workspace(workspace, problem.num_tokens)
    for _ in range(2):
        for problem, want in zip(several, expected, strict=True):
            output = torch.empty_like(problem.input)
            call(problem, workspace, output)
            assert torch.equal(output.view(torch.int16), want.view(torch.int16))


@pytest.fixture
def flush_denormals() -> Iterator[None]:
    if not torch.set_flush_denormal(True):
        pytest.skip("the processor has no flush-to-zero mode")
    yield
    torch.set_flush_denormal(False)


@pytest.mark.usefixtures("restore_threads")
def test_denormal_mode_of_torch_has_no_effect_and_survives(request: pytest.FixtureRequest) -> None:
    torch.set_num_threads(1)
    several = problems()  # their subnormals are made before torch flushes them
    expected = digests(several)
    request.getfixturevalue("flush_denormals")
    tiny = torch.tensor([1e-40])
    assert float(tiny * 1.0) == 0.0  # the mode is on
    assert digests(several) == expected
    assert float(tiny * 1.0) == 0.0  # and stays on


@pytest.mark.parametrize("expert", [0, 895])
def test_only_one_expert(expert: int) -> None:
    """Offsets of the last expert pass 2^31 FP4 elements; no other expert's memory is read."""
    weights = RandomWeights(3)
    problem = make_inputs(20, routing="duplicates", experts=[expert] * 16, seed=8, weights=weights)
    output, stages = run(problem)
    assert compare(problem, output, stages, bitwise=True).row_error > 0
    used = int(stages.expert_offsets[-1])
    assert used == 20 * TOP_K
    assert int(stages.expert_offsets[expert]) == 0
    assert int(stages.expert_offsets[expert + 1]) == used
