"""Capture and replay of the whole call, and what a captured call consists of."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from gpu_support.graphs import KERNEL, MEMCPY, MEMSET, captured_nodes
from gpu_support.plans import DEVICE, has_kernels, plan, plan_rows
from gpu_support.problems import problem_of

import cake_moe
from cake_moe.layout import MAX_TOKENS
from cake_moe.testing.calls import check_replay
from cake_moe.testing.stages import call

pytestmark = pytest.mark.skipif(not has_kernels(), reason="needs a GPU that fused_moe has kernels for")


@pytest.mark.parametrize("num_tokens", [1, 4, 5, 64, 65, 300, 1000, 4096])
def test_replay_follows_every_operand(num_tokens: int) -> None:
    """Inputs, ids, route weights, weights, all scales and betas are changed in place between the replays."""
    problems = [problem_of(num_tokens, "no_route"), problem_of(num_tokens, "skew", "wide")]
    problems.append(problem_of(num_tokens, "out_of_range", "integer"))
    dtype = problems[0].token_final_scales.dtype
    problems = [replace(problem, token_final_scales=problem.token_final_scales.to(dtype)) for problem in problems]
    check_replay(problems)


def test_first_call_of_a_process_is_captured() -> None:
    script = Path(__file__).parent / "gpu_support" / "first_call.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=170, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-2000:]


def test_captured_nodes_are_the_plan() -> None:
    """Every count from 1 to 16384: as many launches as planned, with the planned grids and threads, and no more."""
    problem = problem_of(MAX_TOKENS)
    workspace = torch.empty(cake_moe.workspace_size(MAX_TOKENS), dtype=torch.uint8, device=DEVICE)
    cake_moe.prepare_workspace(workspace, MAX_TOKENS, up_to=True)
    output = torch.empty_like(problem.input)
    for num_tokens in range(1, MAX_TOKENS + 1):
        part = problem.take(slice(num_tokens))
        nodes = captured_nodes(lambda part=part: call(part, workspace, output[: part.num_tokens]))
        launches = plan(num_tokens)["launches"]
        assert [node.kind for node in nodes if node.kind in (MEMCPY, MEMSET)] == []
        kernels = sorted((node.grid, node.threads) for node in nodes if node.kind == KERNEL)
        assert kernels == sorted((launch["grid"], launch["threads"]) for launch in launches), f"M={num_tokens}"


@pytest.mark.parametrize("num_tokens", sorted({1, 64, 65, *(row.first for row in plan_rows())}))
def test_number_of_launches(num_tokens: int) -> None:
    """At most 2 up to 64 tokens and 4 above: kernels, copies and fills of the captured graph."""
    problem = problem_of(num_tokens)
    workspace = torch.empty(cake_moe.workspace_size(num_tokens), dtype=torch.uint8, device=DEVICE)
    cake_moe.prepare_workspace(workspace, num_tokens)
    output = torch.empty_like(problem.input)
    nodes = captured_nodes(lambda: call(problem, workspace, output))
    assert len([node for node in nodes if node.kind in (KERNEL, MEMCPY, MEMSET)]) <= (2 if num_tokens <= 64 else 4)


def test_no_tokens_launch_nothing() -> None:
    problem = problem_of(1)
    rows = ("input", "token_selected_experts", "token_final_scales")
    empty = replace(problem, **{name: getattr(problem, name)[:0] for name in rows})
    workspace = torch.empty(cake_moe.workspace_size(1), dtype=torch.uint8, device=DEVICE)
    output = torch.empty_like(empty.input)
    assert captured_nodes(lambda: call(empty, workspace, output)) == []
